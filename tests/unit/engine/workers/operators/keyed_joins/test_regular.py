"""Joins without a window in the real runtime, against a join of all records, and through crashes at
every place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.store_layout import STATE
from millwheel.testing import PipelineHarness, assert_survives_crashes

HEAD = """
pipeline: joins
streams:
  shown: {source: {files: {path: a.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
  clicked: {source: {files: {path: b.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
"""
JOIN = """
  matched: {{input: {{{left}: {{key: ad}}, {right}: {{key: ad}}}}, join: {join}, output: matched}}
"""
COUNTED = """
  counts:
    input: {{{of}: {{key: [ad, what]}}}}
    window: global
    trigger: {{repeat: {{after_count: 1}}}}
    accumulation: retracting
    aggregate: {{n: count}}
    output: {of}_counts
"""
KINDS = ("inner", "left", "right", "outer", "semi", "anti")
Row = dict[str, Any]


def written(folder: Path, *parts: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(HEAD + "".join(parts))
    return str(path)


def joined(folder: Path, join: str, left: str = "shown", right: str = "clicked") -> str:
    return written(folder, JOIN.format(join=join, left=left, right=right))


def row(at: int, ad: int = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what}


def folded(rows: list[Any]) -> Counter[str]:
    """The rows that were emitted once more than they were taken back."""
    found: Counter[str] = Counter()
    for value in rows:
        back = "__retraction__" in value
        plain = {name: part for name, part in value.items() if name != "__retraction__"}
        found[json.dumps(plain, sort_keys=True)] += -1 if back else 1
    assert all(count >= 0 for count in found.values()), found
    return +found


def whole(kind: str, lefts: list[Row], rights: list[Row], names: tuple[str, str]) -> Counter[str]:
    """The join of all records, as a batch would make it."""
    left_name, right_name = names
    found: list[Any] = []
    for left in lefts:
        partners = [right for right in rights if right["ad"] == left["ad"]]
        if kind in ("semi", "anti"):
            found += [left] if bool(partners) == (kind == "semi") else []
            continue
        found += [{"ad": left["ad"], left_name: left, right_name: right} for right in partners]
        if not partners and kind in ("left", "outer"):
            found.append({"ad": left["ad"], left_name: left, right_name: None})
    for right in rights if kind in ("right", "outer") else []:
        if not any(left["ad"] == right["ad"] for left in lefts):
            found.append({"ad": right["ad"], left_name: None, right_name: right})
    return folded(found)


pushes = st.lists(
    st.tuples(
        st.sampled_from(["shown", "clicked"]),
        st.builds(row, st.integers(0, 3), st.integers(1, 2), st.sampled_from("xy")),
    ),
    max_size=9,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept_joins")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(pushes, st.integers(0, 9))
def test_what_stands_is_the_join_of_all_records(
    folder: Path, kind: str, given_pushes: list[tuple[str, Row]], crash: int
) -> None:
    with PipelineHarness(joined(folder / kind, kind)) as harness:
        for number, (stream, value) in enumerate(given_pushes):
            if number == crash:
                harness.crash()
            harness.push(stream, value)
        rows = harness.take("matched")
    names = ("shown", "clicked")
    lefts, rights = ([value for of, value in given_pushes if of == name] for name in names)
    assert folded(rows) == whole(kind, lefts, rights, names)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(pushes)
def test_what_stands_of_changing_inputs_is_the_join_of_what_stands_of_them(
    folder: Path, kind: str, given_pushes: list[tuple[str, Row]]
) -> None:
    path = written(
        folder / f"changing_{kind}",
        COUNTED.format(of="shown"),
        JOIN.format(join=kind, left="shown_counts", right="clicked"),
    )
    with PipelineHarness(path) as harness:
        for stream, value in given_pushes:
            harness.push(stream, value)
        rows = harness.take("matched")
    sizes = Counter((value["ad"], value["what"]) for of, value in given_pushes if of == "shown")
    bounds: Row = {}
    for each in rows:
        counts = each if kind in ("semi", "anti") else each["shown_counts"]
        bounds |= {name: counts[name] for name in ("window_start", "window_end")} if counts else {}
    lefts = [{"ad": ad, "what": what, **bounds, "n": n} for (ad, what), n in sizes.items()]
    rights = [value for of, value in given_pushes if of == "clicked"]
    assert folded(rows) == whole(kind, lefts, rights, ("shown_counts", "clicked"))


@pytest.mark.parametrize("first", ["shown", "clicked"])
def test_a_pair_has_the_later_of_both_times(tmp_path: Path, first: str) -> None:
    times = {"shown": 7, "clicked": 3}
    path = joined(tmp_path, "inner")
    with PipelineHarness(path) as harness:
        for stream in sorted(times, key=lambda name: name != first):
            harness.push(stream, row(times[stream]))
        [pair] = harness.records("matched")
    assert (pair.timestamp, pair.key) == (7, 1)


def test_a_null_finds_no_partner(tmp_path: Path) -> None:
    with PipelineHarness(joined(tmp_path, "left")) as harness:
        harness.push("shown", {"at": 1, "ad": None})
        harness.push("clicked", {"at": 1, "ad": None})
        assert harness.take("matched") == []
        assert len(harness.read("dead_letters")) == 2


def test_what_was_forgotten_is_not_taken_back(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        COUNTED.format(of="shown").replace("output:", "output_time: latest\n    output:"),
        JOIN.format(join="{kind: inner, ttl: 10us}", left="shown_counts", right="clicked"),
    )
    with PipelineHarness(path) as harness:
        harness.push("shown", row(1))
        harness.push("clicked", row(2))
        assert [each["shown_counts"]["n"] for each in harness.take("matched")] == [1]
        harness.advance_watermark(90)
        harness.push("clicked", row(91))
        harness.push("shown", row(92))
        said = harness.take("matched")
        assert [("__retraction__" in each, each["shown_counts"]["n"]) for each in said] == [
            (False, 2)
        ]
        assert harness.counters_of("matched")["forgotten"] == 1


@pytest.mark.parametrize("kind", ["outer", "semi"])
def test_a_join_without_a_window_survives_crashes(tmp_path: Path, kind: str) -> None:
    records = {"shown": [row(1), row(12), row(3, ad=2)], "clicked": [row(2), row(25), row(14)]}
    assert assert_survives_crashes(joined(tmp_path, kind), records, every=13) > 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_without_rows_has_no_entry(tmp_path: Path, kind: str) -> None:
    """Neither one that nothing has come by, nor one of which all was taken back."""
    with PipelineHarness(joined(tmp_path, kind)) as harness:
        harness.push("shown", row(1))
        assert stored(harness) == 1
        harness.push("clicked", row(2))
        assert stored(harness) == 2
        harness.push("clicked", {**row(2), "__retraction__": True})
        harness.push("shown", {**row(1), "__retraction__": True})
        assert stored(harness) == 0
        harness.push("shown", {**row(3), "__retraction__": True})  # it waits for its record
        assert stored(harness) == 1
        harness.push("shown", row(3))
        assert stored(harness) == 0


def stored(harness: PipelineHarness) -> int:
    """The entries that the join has."""
    shards = harness._cluster.shards_of("matched")
    return sum(len([*shard.store.scan(STATE)]) for shard in shards)
