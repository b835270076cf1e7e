"""What was written at w with a time to live is absent for every call whose time is w plus that, or
later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import Computation, ListState, MapState, ValueState
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.keys import stored_key
from millwheel.core.model.times import LAST_TIME, MAX_TIME
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.errors import CorruptionError
from millwheel.testing import PipelineHarness
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.state.test_keyed_state import Bench

SECOND = 1_000_000
KINDS = ("number", "notes", "items", "ages")


class Brief(Computation):
    number = ValueState(int, default=0, ttl="10s")
    notes = ValueState(list[int], default=list, ttl="10s")
    items = ListState(int, ttl="10s")
    ages = MapState(int, ttl="10s")
    marks = MapState(dict, ttl="10s")


@pytest.fixture
def bench() -> Bench:
    return Bench(Brief)


def write(bench: Bench, kind: str, second: int) -> None:
    it = bench.at("k", second * SECOND)
    if kind == "number":
        it.number.set(1)
    elif kind == "notes":
        it.notes.set([1])
    elif kind == "items":
        it.items.append(1)
    else:
        it.ages["x"] = 1
    bench.state.settle()


def there(bench: Bench, kind: str, second: int) -> bool:
    it = bench.at("k", second * SECOND)
    seen = {
        "number": lambda: it.number.get() == 1,
        "notes": lambda: it.notes.get() == [1],
        "items": lambda: len(it.items) > 0 and next(iter(it.items)) == 1,
        "ages": lambda: "x" in it.ages and it.ages["x"] == 1 and dict(it.ages.items()) == {"x": 1},
    }[kind]()
    bench.state.settle()
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("between", ["one bundle", "two bundles", "a recovery"])
def test_an_entry_ends_when_its_time_has_come_in_whatever_bundle_that_is(
    bench: Bench, kind: str, between: str
) -> None:
    write(bench, kind, 0)
    if between != "one bundle":
        bench.commit()
    if between == "a recovery":
        bench.reopen()
    assert there(bench, kind, 9)
    assert not there(bench, kind, 10)
    assert not there(bench, kind, 600)
    assert there(bench, kind, 5), "a look removes nothing: a record out of order finds it"


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_out_of_order_never_shortens_a_life(bench: Bench, kind: str) -> None:
    write(bench, kind, 100)
    write(bench, kind, 92)
    assert there(bench, kind, 109)
    assert not there(bench, kind, 110)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_cleared_begins_a_life_of_its_own(bench: Bench, kind: str) -> None:
    write(bench, kind, 100)
    getattr(bench.at("k", 101 * SECOND), kind).clear()
    write(bench, kind, 92)
    assert there(bench, kind, 101)
    assert not there(bench, kind, 102)


@pytest.mark.parametrize("kind", KINDS)
def test_clearing_removes_also_what_the_call_no_longer_sees(bench: Bench, kind: str) -> None:
    write(bench, kind, 0)
    getattr(bench.at("k", 20 * SECOND), kind).clear()
    assert not there(bench, kind, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_behind_the_watermark_writes_as_of_the_watermark(bench: Bench, kind: str) -> None:
    bench.state.clock = 100 * SECOND
    write(bench, kind, 3)
    assert there(bench, kind, 3)
    assert there(bench, kind, 109)
    assert not there(bench, kind, 110)


@pytest.mark.parametrize("kind", KINDS)
def test_the_watermark_removes_an_entry_also_when_it_was_written_and_ended_in_one_bundle(
    bench: Bench, kind: str
) -> None:
    write(bench, kind, 0)
    bench.pass_by(20 * SECOND)
    assert (dict(bench.store.data), bench.timers) == ({}, {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("between", ["one bundle", "two bundles", "a recovery"])
def test_what_would_end_behind_the_end_of_time_has_no_end(
    bench: Bench, kind: str, between: str
) -> None:
    last = LAST_TIME // SECOND
    for second in (LAST_TIME // SECOND - 9, last):
        write(bench, kind, second)
        if between != "one bundle":
            bench.commit()
        if between == "a recovery":
            bench.reopen()
        assert there(bench, kind, last)
        bench.pass_by(MAX_TIME)
        bench.state.clock = MAX_TIME
        assert there(bench, kind, last), "nor is it over when all input has ended"
        bench.state.clock = 0
    assert bench.timers == {}


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_end_of_time_goes_what_is_over_by_then(bench: Bench, kind: str) -> None:
    write(bench, kind, LAST_TIME // SECOND - 11)
    bench.state.clock = MAX_TIME
    assert not there(bench, kind, 3)
    bench.pass_by(MAX_TIME)
    assert (dict(bench.store.data), bench.timers) == ({}, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_an_older_version_has_a_timer_for_what_has_no_end(
    bench: Bench, kind: str
) -> None:
    """It was to go at the last instant, whenever it was written."""
    write(bench, kind, LAST_TIME // SECOND)
    bench.commit()
    bench.queue.set("k", TTL_TAG + kind, LAST_TIME)
    bench.pass_by(MAX_TIME)
    assert there(bench, kind, LAST_TIME // SECOND)
    assert bench.timers == {}


def test_a_write_does_not_move_the_timer_that_is_set(bench: Bench) -> None:
    for second in range(9):
        for kind in ("number", "items"):
            write(bench, kind, second)
        bench.commit()
    assert bench.timers == {TTL_TAG + "number": 10 * SECOND, TTL_TAG + "items": 10 * SECOND}
    bench.pass_by(11 * SECOND)
    assert bench.timers == {TTL_TAG + "number": 18 * SECOND, TTL_TAG + "items": 18 * SECOND}


def test_the_entries_of_a_busy_map_go_one_after_the_other(bench: Bench) -> None:
    for second in range(100):
        bench.pass_by(second * SECOND)
        bench.at("k", second * SECOND).ages[second] = second
        bench.commit()
        assert len(bench.store.data) <= 13
    assert len(dict(bench.it.ages.items())) == 10


def test_what_is_changed_in_place_lives_on_and_what_is_only_looked_at_does_not(
    bench: Bench,
) -> None:
    for second in (0, 8, 16):
        it = bench.at("k", second * SECOND)
        it.notes.get().append(second)
        it.notes.get().append(second)
        mark = it.marks.get("x")
        if mark is None:
            it.marks["x"] = {"n": 1}
        bench.state.settle()
    assert bench.at("k", 25 * SECOND).notes.get() == [0, 0, 8, 8, 16, 16]
    assert bench.it.marks.get("x") == {"n": 1}, "it ended at 10 s and was written again at 16 s"
    bench.state.settle()
    assert bench.at("k", 26 * SECOND).notes.get() == []
    bench.commit()
    bench.reopen()
    assert bench.at("k", 25 * SECOND).notes.get() == [0, 0, 8, 8, 16, 16], (
        "nobody has written since"
    )


def test_stores_of_older_versions_are_read(bench: Bench) -> None:
    """They had one timer for each state of a key, at the end of what was written last, and lists
    with the time of the item that came last."""
    own = STATE + stored_key("k")
    at = [second.to_bytes(8, "big", signed=True) for second in (0, 4 * SECOND)]
    data = {
        own + b"ages\0\xa1x": at[0] + b"\x01",
        own + b"ages\0\xa1y": at[1] + b"\x02",
        own + b"items\0": b"\x92\x01\x00",
        own + b"items\0" + bytes(8): b"\x07",
        own + b"number\0": at[0] + b"\x09",
    }
    bench = Bench(Brief, SimStore(data))
    for name, end in (("ages", 14), ("items", 10), ("number", 10)):
        bench.queue.set("k", TTL_TAG + name, end * SECOND)
    it = bench.at("k", 9 * SECOND)
    assert (it.number.get(), list(it.items), dict(it.ages.items())) == (9, [7], {"x": 1, "y": 2})
    assert dict(bench.at("k", 11 * SECOND).ages.items()) == {"y": 2}
    bench.pass_by(15 * SECOND)
    assert (dict(bench.store.data), bench.timers) == ({}, {})


def test_a_type_that_changed_harms_nobody_once_the_entry_is_over() -> None:
    class Changed(Computation):
        number = ValueState(str, ttl="10s")

    old = Bench(Brief)
    write(old, "number", 0)
    old.commit()
    bench = Bench(Changed, old.store)
    bench.queue.set("k", TTL_TAG + "number", 10 * SECOND)
    assert bench.at("k", 20 * SECOND).number.get() is None
    with pytest.raises(CorruptionError, match="number"):
        bench.at("k", 5 * SECOND).number.get()
    bench.reopen()
    bench.queue.set("k", TTL_TAG + "number", 10 * SECOND)
    bench.pass_by(11 * SECOND)
    assert not bench.store.data


# --- in a pipeline --------------------------------------------------------------------------------

PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: {field: at, unit: us}, watermark: {max_delay: 1d}}
computations:
  c: {input: {hits: {key: user}}, FORM, output: out}
sinks:
  out: {files: {path: "out"}}
"""
CODE = """
from millwheel import Computation, MapState
from millwheel.core.model.records import Domain


class Seen(Computation):
    seen = MapState(int, ttl="10s")

    def process_record(self, ctx, record):
        ctx.produce("out", {"at": record.timestamp // 1_000_000, "seen": sorted(key for key,
          _ in self.seen.items())})
        self.seen[str(record.timestamp // 1_000_000)] = 1
        if record.value.get("timer") is not None:
            ctx.set_timer("t", record.value["timer"] * 1_000_000)
        if record.value.get("ring"):
            ctx.set_timer("r", ctx.now + 1, Domain.PROCESSING)
        if record.value.get("raise"):
            raise ValueError("as asked")

    def process_timer(self, ctx, timer):
        ctx.produce("out", {"timer": timer.tag, "seen": sorted(key for key,
          _ in self.seen.items())})
"""


def harness(
    folder: Path, form: str = 'callback: "code_of_it:Seen"', **options: Any
) -> PipelineHarness:
    (folder / "p.yaml").write_text(PIPELINE.replace("FORM", form))
    (folder / "code_of_it.py").write_text(CODE)
    return PipelineHarness(folder / "p.yaml", shards=1, workers=1, **options)


def hit(second: int, **more: Any) -> dict[str, Any]:
    return {"user": "ann", "page": "/", "at": second * SECOND, **more}


@pytest.mark.parametrize("together", [True, False])
def test_deduplicate_passes_what_comes_within_later_whatever_came_with_it(
    tmp_path: Path, together: bool
) -> None:
    with harness(tmp_path, "deduplicate: {by: [page], within: 10s}") as it:
        records = [hit(0), hit(9), hit(10), hit(19), hit(600)]
        for push in [records] if together else records:
            it.push("hits", push)
        assert [row["at"] // SECOND for row in it.read("out")] == [0, 10, 600]


def test_a_timer_sees_what_lives_at_its_own_time_however_far_the_watermark_has_jumped(
    tmp_path: Path,
) -> None:
    for rises in ([100], list(range(1, 101))):
        with harness(tmp_path) as it:
            it.push("hits", hit(0, timer=9))
            for second in rises:
                it.advance_watermark(second * SECOND)
            assert it.read("out")[-1] == {"timer": "t", "seen": ["0"]}
            assert it.state("c", "ann") == {"seen": {}}


def test_a_timer_for_a_time_already_passed_fires_before_the_next_record(tmp_path: Path) -> None:
    for together in (True, False):
        with harness(tmp_path) as it:
            it.advance_watermark(100 * SECOND)
            records = [hit(103, timer=50), hit(104)]
            for push in [records] if together else records:
                it.push("hits", push)
            assert it.read("out") == [
                {"at": 103, "seen": []},
                {"timer": "t", "seen": ["103"]},
                {"at": 104, "seen": ["103"]},
            ]


def test_a_timer_by_the_wall_clock_counts_as_of_the_watermark(tmp_path: Path) -> None:
    with harness(tmp_path, now=0) as it:
        it.push("hits", hit(0, ring=True))
        it.advance_watermark(9 * SECOND)
        it.push("hits", hit(9, ring=True))
        it.advance_processing_time(5)
        assert it.read("out")[-1] == {"timer": "r", "seen": ["0", "9"]}
        it.push("hits", hit(9, ring=True))
        it.advance_watermark(15 * SECOND)
        it.advance_processing_time(10)
        assert it.read("out")[-1] == {"timer": "r", "seen": ["9"]}


def test_a_record_that_fails_writes_nothing_and_prolongs_nothing(tmp_path: Path) -> None:
    with harness(tmp_path) as it:
        it.push("hits", [hit(0), {**hit(5, timer=6), "raise": True}, hit(8)])
        assert it.read("out")[-1] == {"at": 8, "seen": ["0"]}
        it.advance_watermark(100 * SECOND)
        assert len(it.read("out")) == 2


def test_copies_at_the_last_instant_are_copies(tmp_path: Path) -> None:
    """What a global window emits has that instant as its time, whenever it emits it."""
    (tmp_path / "p.yaml").write_text("""
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}
computations:
  totals:
    input: {hits: {key: user}}
    window: global
    aggregate: {n: count}
    trigger: {after_watermark: {early: {after_processing_time: 5s}}}
    accumulation: accumulating
    output: totals
  news: {input: {totals: {key: user}}, deduplicate: {within: 10s, by: [n]}, output: out}
""")
    for layout in (1, 3):
        with PipelineHarness(tmp_path / "p.yaml", shards=layout, workers=min(layout, 2)) as it:
            it.push("hits", hit(5))
            it.advance_processing_time(120 * SECOND)
            it.finish()
            assert [row["n"] for row in it.read("totals")] == [1, 1], (
                "the early pane and the last one"
            )
            assert [row["n"] for row in it.read("out")] == [1]
