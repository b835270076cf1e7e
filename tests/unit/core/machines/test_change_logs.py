"""Change logs: whatever the bundles, the rows folded by key are those of all records together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Group
from millwheel.core.windows.combinations import Repeat
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.panes import Pane, Retraction
from millwheel.core.windows.triggers import AfterCount, AfterProcessingTime, Default
from millwheel.core.windows.windows import GLOBAL_WINDOW, Forever, Tumbling, Window
from millwheel.testing import WindowHarness

EACH = Repeat(AfterCount(1))
EVERY = Repeat(AfterProcessingTime(0, 10))
RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-5, 5), st.integers(0, 60)), max_size=12
)
SIZES = st.lists(st.integers(1, 4), min_size=12, max_size=12)
AGGREGATES = {"n": "count", "total": {"sum": "v"}, "most": {"max": "v"}}


def log(trigger: Any = EACH, mode: str = "retracting", **more: Any) -> WindowHarness:
    ttl = more.pop("ttl", None)
    return WindowHarness(
        Forever(ttl), trigger, mode, aggregate=more.pop("aggregate", AGGREGATES), **more
    )


def bundles(records: list[Any], sizes: list[int]) -> list[list[Any]]:
    cut, rest = [], list(records)
    for size in sizes:
        cut.append(rest[:size])
        rest = rest[size:]
    return [each for each in [*cut, rest] if each]


def folded(panes: list[Pane]) -> dict[Any, tuple[int, Any]]:
    """The rows that a table by key would have. Each retraction is of the row that stands."""
    rows: dict[Any, tuple[int, Any]] = {}
    for pane in panes:
        if pane.retraction:
            assert rows.pop(pane.key) == (pane.timestamp, pane.result)
        else:
            rows[pane.key] = (pane.timestamp, pane.result)
    return rows


def wanted(records: list[Any]) -> dict[Any, tuple[int, Any]]:
    found: dict[Any, tuple[int, Any]] = {}
    for key in {key for key, *_ in records}:
        own = [(v, at) for each, v, at in records if each == key]
        values = [v for v, _ in own]
        result = {"n": len(own), "total": sum(values), "most": max(values)}
        found[key] = (max(at for _, at in own), result)
    return found


def push(harness: WindowHarness, bundle: list[Any]) -> None:
    harness.push_bundle([(key, {"v": v}, at) for key, v, at in bundle])


@given(RECORDS, SIZES, st.sampled_from([EACH, EVERY]), st.sampled_from([True, False]))
def test_rows_folded_by_key_are_those_of_all_records(
    records: list[Any], sizes: list[int], trigger: Any, stored: bool
) -> None:
    for mode in ("retracting", "accumulating"):
        harness = log(trigger, mode, stored=stored)
        for number, bundle in enumerate(bundles(records, sizes)):
            push(harness, bundle)
            harness.advance_processing_time(number * 7)
            # a late record counts like others: no group ends
            harness.advance_watermark(max(harness.watermark, bundle[-1][2]))
        harness.advance_watermark(MAX_TIME)
        assert folded(harness.take()) == wanted(records)
        assert not harness.late


@given(RECORDS, SIZES, st.randoms(), st.sampled_from([0, 7]))
def test_records_that_are_taken_back_leave_no_trace(
    records: list[Any], sizes: list[int], rng: Any, later: int
) -> None:
    """At their own times, or at those of what takes their place."""
    gone = [each for each in records if rng.random() < 0.5]
    steps: list[Any] = [(key, {"v": v}, at) for key, v, at in records]
    steps += [(key, Retraction({"v": v}), at + later) for key, v, at in gone]
    rest = list(records)
    for each in gone:
        rest.remove(each)
    harness = log(takes_retractions=True)
    for bundle in bundles(steps, sizes):
        harness.push_bundle(bundle)
    found = folded(harness.take())
    assert {key: result for key, (_, result) in found.items()} == {
        key: result for key, (_, result) in wanted(rest).items()
    }


def test_each_bundle_makes_one_version_of_a_group_and_takes_the_one_before_back() -> None:
    harness = log()
    push(harness, [("a", 1, 10), ("a", 2, 30), ("b", 5, 20)])
    push(harness, [("a", 3, 5)])
    told = [
        (each.key, each.timestamp, each.result["n"], each.retraction) for each in harness.take()
    ]
    assert told == [
        ("a", 30, 2, False),
        ("b", 20, 1, False),
        ("a", 30, 2, True),
        ("a", 30, 3, False),
    ]


def test_mini_batches_hold_the_watermark_at_what_they_will_say() -> None:
    harness = log(EVERY)
    harness.advance_processing_time(3)
    push(harness, [("a", 1, 50)])
    push(harness, [("a", 2, 40)])
    assert not harness.take()
    assert list(harness.holds.values()) == [50]
    harness.advance_processing_time(11)
    assert [pane.result["n"] for pane in harness.take()] == [2]
    assert not harness.holds


@pytest.mark.parametrize("mode", ["retracting", "accumulating"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_group_that_was_silent_for_its_ttl_begins_anew(mode: str, cut: int) -> None:
    records = [("a", 1, 0), ("a", 2, 10), ("a", 4, 21), ("b", 1, 22), ("b", 1, 32)]
    harness = log(mode=mode, ttl=10)
    for bundle in bundles(records, [cut] * 5):
        push(harness, bundle)
        harness.advance_watermark(bundle[-1][2])
    rows = {pane.key: pane.result for pane in harness.take() if not pane.retraction}
    assert {key: (row["n"], row["total"]) for key, row in rows.items()} == {
        "a": (1, 4),
        "b": (2, 2),
    }
    harness.advance_watermark(100)
    push(harness, [("b", 7, 101)])
    [last] = harness.take()  # nothing is taken back: the group before is forgotten
    assert (last.retraction, last.result["n"]) == (False, 1)


def test_records_that_do_not_count_keep_no_group() -> None:
    harness = log(ttl=10, aggregate={"n": "count", "total": {"sum": "v"}})
    push(harness, [("a", 1, 0)])
    harness.push_bundle([("a", {"v": "x"}, 9), ("a", {"v": 5}, 18)])
    last = harness.take()[-1]
    assert (last.result, len(harness.rejected)) == ({"n": 1, "total": 5}, 1)


@given(RECORDS, SIZES, st.sampled_from([None, 7, 30]))
def test_groups_of_a_bundle_are_taken_as_its_records_are(
    records: list[Any], sizes: list[int], ttl: int | None
) -> None:
    by_record, by_group = log(ttl=ttl), log(ttl=ttl)
    machine: Any = by_group.machine
    state: dict[Any, Any] = {}
    own = [each for each in records if each[0] == "a"]
    for bundle in bundles(own, sizes):
        push(by_record, bundle)
        prepared = [machine.aggregation.prepare({"v": v}) for _, v, _ in bundle]
        stamps = [at for *_, at in bundle]
        acc = machine.aggregation.add_many(
            machine.aggregation.create(),
            prepared,
            stamps,
        )
        span = Window(min(stamps), max(stamps) + 1)
        group = Group(span, acc, len(bundle), min(stamps), max(stamps))
        effects, times = Effects(), Times(by_group.watermark, 0)
        if machine.spans_lives(state, group):
            each = [({"v": v}, at) for _, v, at in bundle]
            machine.on_records(state, "a", each, times, effects)
        else:
            machine.on_groups(state, "a", [group], times, effects)
        known = by_record.take()
        assert [(p.result, p.timestamp, p.retraction) for p in effects.panes] == [
            (p.result, p.timestamp, p.retraction) for p in known
        ]
    assert GLOBAL_WINDOW in state or not own


@pytest.mark.parametrize(
    ("trigger", "mode", "sentence"),
    [
        (Default(), "retracting", "goes on for ever: write trigger: {every: 1s}"),
        (AfterCount(3), "retracting", "goes on for ever"),
        (EACH, "discarding", "have all records of their group"),
    ],
)
def test_what_would_end_a_group_or_give_a_part_of_it_is_refused(
    trigger: Any, mode: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        log(trigger, mode)
    assert WindowHarness(Tumbling(5), Default(), "discarding")


def test_a_late_record_does_not_end_the_hold_of_what_is_yet_to_be_said() -> None:
    harness = log(EVERY)
    harness.advance_processing_time(1)
    harness.push("a", {"v": 1}, 8)
    assert list(harness.holds.values()) == [8]
    harness.advance_watermark(11)
    harness.push("a", {"v": 2}, 1)
    assert list(harness.holds.values()) == [8], "the output watermark stands there"
    harness.push("b", {"v": 3}, 2)
    assert list(harness.holds.values()) == [8], "what is late when it comes holds nothing"
    harness.advance_processing_time(11)
    assert not harness.holds
    assert {pane.key: pane.timestamp for pane in harness.take()} == {"a": 8, "b": 2}
