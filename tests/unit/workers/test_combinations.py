"""deduplicate, branch and order_by in the real runtime, against plain Python, and through crashes at every place."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.testing import PipelineHarness, assert_survives_crashes

HEAD = """
pipeline: combinations
streams:
  hits:
    source: {files: {path: hits.jsonl, format: jsonl}}
    timestamp: {field: at, unit: us}
    watermark: {max_delay: 100us}
"""
DEDUPLICATE = """
computations:
  unique:
    input: {hits: {key: user}}
    deduplicate: {by: [page], within: 10us}
    output: unique_hits
"""
BRANCH = """
computations:
  sort:
    input: hits
    branch: {big: size > 5, small: size < 3, visits: "page == 'a'"}
    match: MATCH
"""
ORDER = """
computations:
  follow:
    input: {hits: {key: user}}
    callback: follow:Follow
    order_by: timestamp
    output: steps
"""
FOLLOW = """
from millwheel import Computation, ListState, ValueState


class Follow(Computation):
    seen = ListState(int)

    def process_record(self, ctx, record):
        if record.value.get("page") == "poison":
            raise ValueError("poisoned")
        self.seen.append(record.timestamp)
        ctx.produce("steps", {"user": ctx.key, "what": record.value["page"], "at": record.timestamp})
        if record.value["page"] == "timer":
            ctx.set_timer("bell", record.timestamp + 3)
        ctx.count("followed")

    def process_timer(self, ctx, timer):
        ctx.produce("steps", {"user": ctx.key, "what": "bell", "at": timer.at})
"""


def written(folder: Path, computations: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "follow.py").write_text(FOLLOW)
    path = folder / "pipeline.yaml"
    path.write_text(HEAD + computations)
    return str(path)


def hit(at: int, user: str = "ann", page: str = "a", size: int = 1) -> dict[str, Any]:
    return {"at": at, "user": user, "page": page, "size": size}


hits = st.lists(
    st.builds(
        hit,
        st.integers(0, 40),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["a", "b", "timer"]),
        st.integers(0, 9),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


# --- deduplicate


@given(records=hits)
@settings(max_examples=40, deadline=None)
def test_a_copy_is_dropped_until_the_horizon_has_passed(folder: Path, records: list[dict[str, Any]]) -> None:
    expected, last = [], {}
    for record in records:
        who = (record["user"], record["page"])
        if who in last and record["at"] < last[who] + 10:
            continue
        last[who] = record["at"]
        expected.append(record)
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        for record in records:
            harness.push("hits", record)
        for user in ("ann", "bob"):
            got = [record for record in harness.read("unique_hits") if record["user"] == user]
            assert got == [record for record in expected if record["user"] == user]
        assert harness.counters.get("deduplicated", 0) == len(records) - len(expected)


def test_what_was_seen_is_forgotten_behind_the_watermark(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", hit(5))
        assert harness.timers("unique", "ann") == []
        before = harness.remembered()["unique"]
        harness.advance_watermark(16)
        assert len(harness.remembered()["unique"]) < len(before)
        harness.push("hits", hit(17))
        assert len(harness.read("unique_hits")) == 2


def test_a_record_without_the_field_is_a_dead_letter(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", [{"at": 1, "user": "ann"}, hit(2)])
        [letter] = harness.read("dead_letters")
        assert "page" in letter["reason"]
        assert harness.read("unique_hits") == [hit(2)]


def test_without_fields_the_whole_value_counts(folder: Path) -> None:
    whole = DEDUPLICATE.replace("by: [page], ", "")
    with PipelineHarness(written(folder / "whole", whole)) as harness:
        harness.push(
            "hits", [hit(1), hit(1), hit(1, size=2), {**hit(1), "more": "x" * 100}, {"more": "x" * 100, **hit(1)}]
        )
        assert len(harness.read("unique_hits")) == 3


def test_duplicates_survive_crashes_once(folder: Path) -> None:
    records = [hit(1), hit(4), hit(2, page="b"), hit(14), hit(15, user="bob"), hit(12)]
    assert assert_survives_crashes(written(folder / "unique", DEDUPLICATE), {"hits": records}, every=3) > 10


# --- branch


@pytest.mark.parametrize("match", ["first", "all"])
@given(records=hits)
@settings(max_examples=25, deadline=None)
def test_a_record_takes_the_branches_that_fit(folder: Path, match: str, records: list[dict[str, Any]]) -> None:
    tests = {"big": lambda r: r["size"] > 5, "small": lambda r: r["size"] < 3, "visits": lambda r: r["page"] == "a"}
    expected = defaultdict(list)
    for record in records:
        fits = [name for name, holds in tests.items() if holds(record)] or ["unmatched"]
        for name in fits if match == "all" else fits[:1]:
            expected[name].append(record)

    def text(record: dict[str, Any]) -> str:
        return str(sorted(record.items()))

    with PipelineHarness(written(folder / f"branch-{match}", BRANCH.replace("MATCH", match))) as harness:
        harness.push("hits", records)
        for name in tests:
            assert sorted(harness.read(name), key=text) == sorted(expected[name], key=text)
        assert harness.counters.get("unmatched", 0) == len(expected["unmatched"])


def test_otherwise_takes_what_no_other_branch_takes(folder: Path) -> None:
    rest = BRANCH.replace("visits: \"page == 'a'\"", "rest: otherwise").replace("MATCH", "all")
    with PipelineHarness(written(folder / "rest", rest)) as harness:
        harness.push("hits", [hit(1, size=9), hit(2, size=4), {"at": 3}])
        assert harness.read("big") == [hit(1, size=9)]
        assert harness.read("rest") == [hit(2, size=4)]
        assert [letter["value"] for letter in harness.read("dead_letters")] == [{"at": 3}]
        assert "unmatched" not in harness.counters


# --- order_by


def in_order(records: list[dict[str, Any]], user: str) -> list[tuple[str, int]]:
    """What the callback does when it is called in order: bells ring before what comes after them."""
    told: list[tuple[int, int, str]] = []
    mine = sorted((r for r in records if r["user"] == user), key=lambda r: r["at"])
    bells: list[int] = []
    due = None
    for record in mine:
        if due is not None and due < record["at"]:
            bells.append(due)
            told.append((due, 1, "bell"))
            due = None
        told.append((record["at"], 0, record["page"]))
        if record["page"] == "timer":
            due = record["at"] + 3
    if due is not None:
        told.append((due, 1, "bell"))
    return [(what, at) for at, _, what in told]


@given(records=hits, step=st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_records_and_timers_come_in_the_order_of_their_times(
    folder: Path, records: list[dict[str, Any]], step: int
) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", records)
        assert harness.read("steps") == []
        for watermark in range(0, 60, step):
            harness.advance_watermark(watermark)
        harness.finish()
        for user in ("ann", "bob"):
            got = [(row["what"], row["at"]) for row in harness.read("steps") if row["user"] == user]
            assert [at for _, at in got] == sorted(at for _, at in got)
            assert sorted(got) == sorted(in_order(records, user))
        assert harness.counters.get("followed", 0) == len(records)


def test_a_record_waits_until_the_watermark_has_passed_it(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(20), hit(10)])
        harness.advance_watermark(20)
        assert [row["at"] for row in harness.take("steps")] == [10]
        harness.crash()
        harness.advance_watermark(21)
        assert [row["at"] for row in harness.take("steps")] == [20]
        assert harness.state("follow", "ann") == {"seen": [10, 20]}


def test_a_record_that_fails_in_its_bundle_is_a_dead_letter_of_its_own(folder: Path) -> None:
    with PipelineHarness(written(folder / "order", ORDER)) as harness:
        harness.push("hits", [hit(3), hit(2, page="poison"), hit(1)])
        harness.finish()
        assert [row["at"] for row in harness.read("steps")] == [1, 3]
        [letter] = harness.read("dead_letters")
        assert (letter["value"], letter["stream"], letter["attempts"]) == (hit(2, page="poison"), "hits", 3)
        assert harness.counters["followed"] == 2


def test_order_survives_crashes(folder: Path) -> None:
    records = [hit(9), hit(3, page="timer"), hit(7), hit(6, user="bob"), hit(1), hit(5, page="poison")]
    assert assert_survives_crashes(written(folder / "order", ORDER), {"hits": records}, every=3) > 10


# --- timers of one bundle


def test_a_timer_may_cancel_and_move_those_that_come_due_with_it(folder: Path) -> None:
    (folder / "timers").mkdir(exist_ok=True)
    (folder / "timers" / "bells.py").write_text(
        "from millwheel import Computation\n\n\n"
        "class Bells(Computation):\n"
        "    def process_record(self, ctx, record):\n"
        "        for tag in 'abc':\n"
        "            ctx.set_timer(tag, record.timestamp + ord(tag) - ord('a'))\n\n"
        "    def process_timer(self, ctx, timer):\n"
        "        ctx.produce('rung', [timer.tag, timer.at])\n"
        "        if timer.tag == 'a':\n"
        "            ctx.cancel_timer('b')\n"
        "            ctx.set_timer('c', 50)\n"
    )
    text = HEAD + "computations:\n  ring: {input: {hits: {key: user}}, callback: 'bells:Bells', output: rung}\n"
    (folder / "timers" / "pipeline.yaml").write_text(text)
    with PipelineHarness(folder / "timers" / "pipeline.yaml") as harness:
        harness.push("hits", hit(10))
        harness.advance_watermark(40)
        assert harness.read("rung") == [["a", 10]]
        harness.advance_watermark(51)
        assert harness.read("rung") == [["a", 10], ["c", 50]]
