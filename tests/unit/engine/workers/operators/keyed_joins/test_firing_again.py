"""Joins in windows that fire more than once, in the real runtime: against a join of all records,
and through crashes at every place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.pipeline.work import JoinKind
from millwheel.engine.workers.operators.keyed_joins.firing_again import news
from millwheel.errors import InvariantError
from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = """
pipeline: joins
streams:
  shown: {{source: {{files: {{path: a, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
  clicked: {{source: {{files: {{path: b, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
computations:
  matched:
    input: {{shown: {{key: ad}}, clicked: {{key: ad}}}}
    window: {window}
    join: {join}
    output: matched
"""
WINDOWS = {
    "tumbling": "{tumbling: 10us}",
    "sliding": "{sliding: 10us, every: 5us}",
    "session": "{session: 4us}",
    "cumulative": "{cumulative: 10us, every: 5us}",
}
AGAIN = {
    "late": "allowed_lateness: 1s",
    "early": "trigger: {repeat: {after_count: 1}}",
    "both": "trigger: {after_watermark: {early: {after_count: 2}, late: {after_count: 1}}}\n"
    "    allowed_lateness: 1s",
}
Row = dict[str, Any]


def written(folder: Path, window: str, join: str, more: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(window=window, join=join) + f"    {more}\n")
    return str(path)


def row(at: int, ad: int = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what}


def folded(rows: list[Row]) -> Counter[str]:
    """The rows that were emitted once more than they were taken back; each is there before it is
    taken back."""
    found: Counter[str] = Counter()
    for value in rows:
        plain = {name: part for name, part in value.items() if name != "__retraction__"}
        line = json.dumps(plain, sort_keys=True)
        found[line] += -1 if "__retraction__" in value else 1
        assert found[line] >= 0, line
    return +found


def once(folder: Path, window: str, join: str, pushed: list[tuple[str, Row]]) -> list[Row]:
    """What the same join emits whose windows fire once, at the end."""
    with PipelineHarness(written(folder / "once", window, join)) as harness:
        for stream, value in pushed:
            harness.push(stream, value)
        harness.finish()
        return harness.take("matched")


pushes = st.lists(
    st.tuples(
        st.sampled_from(["shown", "clicked"]),
        st.builds(row, st.integers(0, 30), st.integers(1, 2), st.sampled_from("xy")),
    ),
    max_size=9,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("again")


@pytest.mark.parametrize("kind", WINDOWS)
@given(
    pushed=pushes,
    again=st.sampled_from(sorted(AGAIN)),
    join=st.sampled_from([kind.value for kind in JoinKind]),
    passed=st.integers(0, 9),
)
@settings(max_examples=6, deadline=None)
def test_what_stands_is_the_join_of_all_records_however_its_windows_fire(
    folder: Path, kind: str, pushed: list[tuple[str, Row]], again: str, join: str, passed: int
) -> None:
    wanted = once(folder, WINDOWS[kind], join, pushed)
    with PipelineHarness(
        written(folder / f"{kind}-{again}", WINDOWS[kind], join, AGAIN[again])
    ) as harness:
        found = []
        for number, (stream, value) in enumerate(pushed):
            if number == passed and again != "early":
                harness.advance_watermark(40)
            harness.push(stream, value)
            if number % 3 == 2:
                harness.crash()
            found += harness.take("matched")
        harness.finish()
        found += harness.take("matched")
    assert folded(found) == folded(wanted)
    if join in ("inner", "semi") and kind != "session":
        assert not any("__retraction__" in each for each in found), "what has a partner keeps it"


def test_a_record_that_stood_alone_is_taken_back_when_a_late_partner_comes(folder: Path) -> None:
    pipeline = written(folder / "alone", WINDOWS["tumbling"], "left", "allowed_lateness: 5us")
    with PipelineHarness(pipeline) as harness:
        harness.push("shown", row(3))
        harness.advance_watermark(10)
        [alone] = harness.take("matched")
        assert alone["clicked"] is None
        harness.push("clicked", row(4))
        back, pair = harness.take("matched")
        assert back == {**alone, "__retraction__": 1}
        assert (pair["shown"], pair["clicked"]) == (row(3), row(4))
        harness.crash()
        harness.push("clicked", row(5))
        [pair] = harness.take("matched")
        assert pair["clicked"] == row(5)
        harness.advance_watermark(15)
        harness.push("clicked", row(6))
        assert harness.take("matched") == []
        assert harness.counters["late"] == 1
        assert harness.state("matched", 1) == {}


def test_a_session_that_grows_takes_its_pairs_back(folder: Path) -> None:
    pipeline = written(folder / "grows", WINDOWS["session"], "inner", AGAIN["early"])
    with PipelineHarness(pipeline) as harness:
        for stream, at in (("shown", 1), ("clicked", 2)):
            harness.push(stream, row(at))
        [first] = harness.take("matched")
        harness.push("clicked", row(4))
        back, *pairs = harness.take("matched")
        assert back == {**first, "__retraction__": 1}
        assert [(each["window_end"], each["clicked"]["at"]) for each in pairs] == [(8, 2), (8, 4)]


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_a_join_that_fires_again_survives_crashes(folder: Path, kind: str) -> None:
    pipeline = written(folder / f"crash-{kind}", WINDOWS[kind], "outer", AGAIN["early"])
    records = {"shown": [row(1), row(12), row(3, ad=2)], "clicked": [row(2), row(25), row(14)]}
    assert assert_survives_crashes(pipeline, records, every=13) > 4


def test_records_that_a_window_had_are_known_by_their_order_or_their_number() -> None:
    now = [[[0, "a"], 1], [[1, "b"], 2], [[0, "a"], 1]]
    assert news(2, now) == [False, False, True]
    assert news([now[1]], now) == [True, False, True]
    assert news([now[0]], now) == [False, True, True], "one of equal ones was there"
    with pytest.raises(InvariantError, match="lost records"):
        news([now[1], now[1]], now)


def test_records_from_before_are_known_by_their_bytes() -> None:
    assert news([[1, "s", {"x": float("nan")}]], [[1, "s", {"x": float("nan")}]]) == [False]
    assert news([[1, "s", {"x": 1}]], [[1, "s", {"x": 1.0}], [1, "s", {"x": 1}]]) == [True, False]
    assert news([[1, "s", {"x": 1}]], [[1, "s", {"x": True}], [1, "s", {"x": 1}]]) == [True, False]
