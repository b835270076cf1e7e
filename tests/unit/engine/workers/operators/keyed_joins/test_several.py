"""Joins of several streams in the real runtime, against a join of all records, and through crashes
at every place."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles
from tests.unit.engine.workers.operators.keyed_joins.test_regular import folded

NAMES = ("shown", "clicked", "bought")
PIPELINE = """
pipeline: joins
streams:
  shown: {{source: {{files: {{path: a, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
  clicked: {{source: {{files: {{path: b, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
  bought: {{source: {{files: {{path: c, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
computations:
  clicks:
    input: {{clicked: {{key: [ad, what]}}}}
    window: global
    trigger: {{repeat: {{after_count: 1}}}}
    accumulation: retracting
    aggregate: {{n: count}}
    output: clicks
  matched:
    input: {{shown: {{key: ad}}, {second}: {{key: ad}}, bought: {{key: ad}}}}
    join: {join}
    output: matched
"""
Row = dict[str, Any]


def joined(folder: Path, join: str, second: str = "clicked") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(join=join, second=second))
    return str(path)


def row(at: int, ad: int = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what}


def whole(kind: str, second: str, sides: list[list[Row]]) -> Counter[str]:
    """The join of all records, as a batch would make it: of each stream its rows, or nothing."""
    found = []
    for ad in (1, 2):
        rows: list[list[Any]] = [[each for each in side if each["ad"] == ad] for side in sides]
        if kind == "left":
            rows[1:] = [side or [None] for side in rows[1:]]
        if kind == "outer":
            rows = [side or [None] for side in rows]
        names = ("shown", second, "bought")
        for parts in product(*rows):
            if any(parts):
                found.append({"ad": ad, **dict(zip(names, parts, strict=True))})
    return folded(found)


pushes = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.builds(row, st.integers(0, 3), st.integers(1, 2), st.sampled_from("xy")),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("several")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
@settings(max_examples=15)
@given(pushes, st.integers(0, 12))
def test_what_stands_is_all_combinations(
    folder: Path, kind: str, given_pushes: list[tuple[str, Row]], crash: int
) -> None:
    with PipelineHarness(joined(folder / kind, kind)) as harness:
        for number, (stream, value) in enumerate(given_pushes):
            if number == crash:
                harness.crash()
            harness.push(stream, value)
        rows = harness.take("matched")
    sides = [[value for of, value in given_pushes if of == name] for name in NAMES]
    assert folded(rows) == whole(kind, "clicked", sides)


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
@settings(max_examples=15)
@given(pushes)
def test_what_stands_of_a_changing_input_is_combined(
    folder: Path, kind: str, given_pushes: list[tuple[str, Row]]
) -> None:
    with PipelineHarness(joined(folder / f"changing_{kind}", kind, "clicks")) as harness:
        for stream, value in given_pushes:
            harness.push(stream, value)
        rows = harness.take("matched")
    sizes = Counter((value["ad"], value["what"]) for of, value in given_pushes if of == "clicked")
    bounds: Row = {}
    for each in rows:
        if counts := each["clicks"]:
            bounds |= {name: counts[name] for name in ("window_start", "window_end")}
    counts = [{"ad": ad, "what": what, **bounds, "n": n} for (ad, what), n in sizes.items()]
    first, _, last = ([value for of, value in given_pushes if of == name] for name in NAMES)
    assert folded(rows) == whole(kind, "clicks", [first, counts, last])


def test_what_goes_is_said_before_what_comes(tmp_path: Path) -> None:
    with PipelineHarness(joined(tmp_path, "left")) as harness:
        harness.push("bought", row(7))
        harness.push("shown", row(5))
        alone = {"ad": 1, "shown": row(5), "clicked": None, "bought": row(7)}
        assert harness.take("matched") == [alone]
        harness.push("clicked", [row(3), row(4, what="y")])
        assert harness.take("matched") == [
            {**alone, "__retraction__": 1},
            {**alone, "clicked": row(3)},
            {**alone, "clicked": row(4, what="y")},
        ]


def test_a_record_is_forgotten_after_its_ttl(tmp_path: Path) -> None:
    with PipelineHarness(joined(tmp_path, "{kind: inner, ttl: {clicked: 10us}}")) as harness:
        harness.push("shown", row(1))
        harness.push("clicked", row(1))
        for name in NAMES:
            harness.advance_watermark(50, name)
        harness.push("bought", row(51))
        assert harness.take("matched") == []
        harness.push("clicked", row(52))
        expected = {"ad": 1, "shown": row(1), "clicked": row(52), "bought": row(51)}
        assert harness.take("matched") == [expected]


@pytest.mark.parametrize("kind", ["inner", "outer"])
def test_a_busy_key_survives_a_crash_at_every_place(tmp_path: Path, kind: str) -> None:
    records = {
        "shown": [row(at) for at in range(12)],
        "bought": [row(1), row(2, 2)],
        "clicked": [row(1), row(2)],
    }
    story = in_bundles(records, 4)
    assert assert_survives_crashes(joined(tmp_path, kind), story, every=13) > 2
