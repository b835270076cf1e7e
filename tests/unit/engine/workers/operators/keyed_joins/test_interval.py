"""Joins within an interval in the real runtime, against a join of all records, and through crashes
at every place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.engine.workers.operators.keyed_joins import interval
from millwheel.testing import PipelineHarness, assert_survives_crashes

TEXT = """
pipeline: joins
streams:
  shown: &one
    source: {{files: {{path: a.jsonl, format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
  clicked: *one
computations:
  matched:
    input: {{shown: {{key: ad}}, clicked: {{key: ad}}}}
    join: {{kind: {kind}, within: {within}}}
    output: matched
"""
KINDS = ("inner", "left", "right", "outer", "semi", "anti")
NEAR = "{before: 2us, after: 1us}"
NAMED = "{until: shown.ends, from: clicked.begins}"
BOUNDS = {
    NEAR: lambda left, right: -2 <= right["at"] - left["at"] <= 1,
    NAMED: lambda left, right: (
        left["at"] <= right["at"] <= left["ends"] and left["at"] >= right["begins"]
    ),
}
Row = dict[str, Any]
Pushes = list[tuple[str, Row]]


def joined(folder: Path, kind: str, within: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(kind=kind, within=within))
    return str(path)


def row(at: int, ad: int = 1, length: int = 3, back: int = 2) -> Row:
    return {"at": at, "ad": ad, "ends": at + length, "begins": at - back}


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(json.dumps(value, sort_keys=True) for value in rows)


def whole(kind: str, within: str, pushes: Pushes) -> Iterator[Row]:
    """The join of all records, as a batch would make it."""
    lefts, rights = ([value for of, value in pushes if of == name] for name in ("shown", "clicked"))
    pairs = [
        (left, right)
        for left in lefts
        for right in rights
        if left["ad"] == right["ad"] and BOUNDS[within](left, right)
    ]
    if kind in ("semi", "anti"):
        met = [id(left) for left, _ in pairs]
        yield from (left for left in lefts if (id(left) in met) == (kind == "semi"))
        return
    for left in lefts if kind in ("left", "outer") else []:
        if not any(one is left for one, _ in pairs):
            yield {"ad": left["ad"], "shown": left, "clicked": None}
    for right in rights if kind in ("right", "outer") else []:
        if not any(other is right for _, other in pairs):
            yield {"ad": right["ad"], "shown": None, "clicked": right}
    for left, right in pairs:
        yield {"ad": left["ad"], "shown": left, "clicked": right}


records = st.builds(
    row, st.integers(0, 9), st.integers(1, 2), st.integers(-1, 5), st.integers(0, 4)
)
batches = st.lists(
    st.tuples(st.sampled_from(["shown", "clicked"]), st.lists(records, min_size=1, max_size=5)),
    max_size=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interval_joins")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("within", BOUNDS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(st.sampled_from([2, 2, 64]), batches, st.integers(0, 6))
def test_all_that_is_near_meets_and_what_meets_nothing_is_said(
    folder: Path,
    kind: str,
    within: str,
    few: int,
    given_batches: list[tuple[str, list[Row]]],
    crash: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval, "_FEW", few)  # so few that segments are made
        with PipelineHarness(joined(folder / f"{kind}{few}", kind, within)) as harness:
            for number, (stream, values) in enumerate(given_batches):
                if number == crash:
                    harness.crash()
                harness.push(stream, values)
            harness.advance_watermark(4)
            harness.crash()
            harness.advance_watermark(1_000)
            rows = harness.take("matched")
            assert harness.remembered()["matched"] == {}
    pushes = [(stream, value) for stream, values in given_batches for value in values]
    assert counted(rows) == counted(list(whole(kind, within, pushes)))


def test_what_has_no_partner_is_said_once_its_interval_has_passed(tmp_path: Path) -> None:
    with PipelineHarness(joined(tmp_path, "left", "{until: shown.ends}")) as harness:
        harness.push("shown", [row(10, length=5), row(11, length=-3)])
        harness.advance_watermark(15)
        [empty] = harness.records("matched")
        # its bound lies before its own time, which counts then
        assert (empty.value["shown"]["at"], empty.timestamp) == (11, 11)
        harness.advance_watermark(16)
        assert [each.timestamp for each in harness.records("matched")] == [11, 15]


LATE = """
  past: {input: {clicked: {key: ad}}, callback: "past:Past", output: missed}
"""
PAST = """
from millwheel.api import Computation

class Past(Computation):
    def process_record(self, ctx, record):
        ctx.set_timer("then", record.value["then"])

    def process_timer(self, ctx, timer):
        ctx.produce("missed", {"ad": timer.key, "then": timer.at})
"""


def test_a_late_record_meets_what_is_there_and_waits_for_nothing(tmp_path: Path) -> None:
    path = Path(joined(tmp_path, "outer", "{before: 20us, after: 20us}"))
    text = path.read_text().replace("clicked: {key: ad}", "missed: {key: ad}")
    path.write_text(text.rstrip() + LATE)
    (tmp_path / "past.py").write_text(PAST)
    with PipelineHarness(str(path)) as harness:
        harness.push("shown", [row(5), row(30)])
        harness.advance_watermark(40)
        assert [each["shown"]["at"] for each in harness.take("matched")] == [5]

        def late(then: int) -> list[tuple[Any, Any]]:
            harness.push("clicked", {**row(40), "then": then})
            return [
                ((each["shown"] or {}).get("at"), (each["missed"] or {}).get("then"))
                for each in harness.take("matched")
            ]

        assert late(12) == [(30, 12)]
        assert late(3) == [(None, 3)]
        assert late(25) == [(30, 25)]
        harness.push("shown", row(41))
        assert [each["missed"]["then"] for each in harness.take("matched")] == [25]


@pytest.mark.parametrize(("bound", "letters"), [(None, 0), ("soon", 1), (2.5, 1)])
def test_a_bound_is_a_time_or_null(tmp_path: Path, bound: Any, letters: int) -> None:
    with PipelineHarness(joined(tmp_path, "inner", "{until: shown.ends}")) as harness:
        harness.push("shown", {**row(1), "ends": bound})
        harness.push("clicked", row(1))
        assert harness.take("matched") == []
        found = harness.read("dead_letters")
    assert len(found) == letters
    assert all("is a whole number of µs" in each["reason"] for each in found)


@pytest.mark.parametrize("kind", ["outer", "semi"])
def test_a_join_within_an_interval_survives_crashes(tmp_path: Path, kind: str) -> None:
    records = {"shown": [row(1), row(12), row(3, ad=2)], "clicked": [row(2), row(25), row(14)]}
    assert assert_survives_crashes(joined(tmp_path, kind, NEAR), records, every=13) > 2
