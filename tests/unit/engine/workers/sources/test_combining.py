"""Local combine: what is grouped before it is sent gives the results of records, whatever is read
and who crashes."""

from __future__ import annotations

import json
from collections import Counter
from functools import partialmethod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.groups_frame import COUNT, END, KEY, START
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.lazy_polars import pl
from millwheel.core.model.names import NodeName, groups_of
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery import combining
from millwheel.engine.workers.delivery.combining import CombineLimits, Combining, ConsumerGroups
from millwheel.engine.workers.delivery.row_groups import bytes_of_lists, cost
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.sources.combining import Combine
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    DIRTY,
    FIELDS,
    LISTS,
    LONG_LISTS,
    PIPELINE,
    events,
    in_rows,
    pipeline,
    results,
    written,
)

ALWAYS = CombineLimits(least=1, looks=1, enters=1.0, leaves=2.0, pause=1)
BACK_AND_FORTH = CombineLimits(least=1, looks=1, enters=1.0, leaves=0.3, pause=2)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the mode was begun and left."""
    found: Counter[str] = Counter()
    begin, leave = Combine.begin, Combine.leave

    def begun(self: Combine) -> None:
        found["begun"] += 1
        begin(self)

    def left(self: Combine) -> None:
        found["left"] += 1
        leave(self)

    monkeypatch.setattr(Combine, "begin", begun)
    monkeypatch.setattr(Combine, "leave", left)
    return found


def small_reads(
    monkeypatch: pytest.MonkeyPatch, limits: CombineLimits, bundle: int = 20_000, size: int = 4096
) -> None:
    monkeypatch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", size))
    monkeypatch.setattr(ReadSize, "__init__", lambda self: setattr(self, "bytes", size))
    monkeypatch.setattr(
        ShardLimits, "__init__", partialmethod(ShardLimits.__init__, combine=limits, bundle=bundle)
    )


def moody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an owner sends as records the next one would send in groups: it goes on, if that is what
    was committed."""
    moods, begun, begin = Random(3), list[Combine](), Combine.begin

    def noted(self: Combine) -> None:
        begun.append(self)
        begin(self)

    def goes_on(self: Combine, *_: object) -> bool:
        return all(each is not self for each in begun) or moods.random() < 0.5

    monkeypatch.setattr(Combine, "begin", noted)
    monkeypatch.setattr(Combine, "goes_on", goes_on)


@pytest.mark.parametrize("form", ["columns", "guessed"])
@pytest.mark.parametrize("limits", [ALWAYS, BACK_AND_FORTH], ids=["always", "back and forth"])
@pytest.mark.parametrize("dirt", DIRTY.values(), ids=DIRTY)
def test_results_are_those_of_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modes: Counter[str],
    dirt: list[object],
    limits: CombineLimits,
    form: str,
) -> None:
    small_reads(monkeypatch, limits, 20 if form == "guessed" else 20_000)
    first, second = events(300, 1), events(250, 2)
    folder = written(tmp_path, {"a": [*first[:150], *dirt, *first[150:]], "b": second})
    added: list[bool] = []
    take = ColumnOperator._take_combined

    def taken(self: ColumnOperator, bundle: Bundle) -> Any:
        found = take(self, bundle)
        added.extend(bool(each.plan.inferred) for each in found)
        return found

    monkeypatch.setattr(ColumnOperator, "_take_combined", taken)
    groups, rows = results(folder, form), results(folder, "rows")
    assert True in added, "the types of results are inferred"
    assert (False in added) == (form == "columns")
    assert groups["minutes"] == rows["minutes"]
    assert groups["totals"] == rows["totals"]
    assert groups["counters"] == rows["counters"]
    assert modes["begun"] >= 2
    assert limits is ALWAYS or modes["left"] > 0


@pytest.mark.parametrize(
    ("limits", "declared"),
    [(ALWAYS, True), (BACK_AND_FORTH, True), (ALWAYS, False)],
    ids=["always", "each owner in its own way", "types are inferred"],
)
def test_a_crash_at_any_place_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modes: Counter[str],
    limits: CombineLimits,
    declared: bool,
) -> None:
    own = limits is BACK_AND_FORTH
    small_reads(monkeypatch, limits, 20_000 if declared else 20, 1024 if own else 4096)
    if own:
        moody(monkeypatch)
    folder = written(
        tmp_path, {"a": events(120, 3), "b": [*events(60, 4), "{no json", *events(60, 5)]}
    )

    def story(harness: PipelineHarness) -> None:
        harness.advance_processing_time(10**9)

    assert (
        assert_survives_crashes(pipeline(folder, declared), story, every=19, run_sources=True) > 3
    )
    assert modes["begun"] > 3


@pytest.mark.parametrize("owners", [5, 6, 8])
def test_groups_begin_behind_all_that_a_former_owner_has_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: Counter[str], owners: int
) -> None:
    small_reads(monkeypatch, ALWAYS, 20_000, 1024)
    folder = written(tmp_path, {"a": events(200, 3), "b": events(200, 5)})
    opened: list[SourceOperator] = []
    opening, look = SourceOperator.__init__, Combine.look

    def init(self: SourceOperator, *given: Any) -> None:
        opened.append(self)
        opening(self, *given)

    def later_ones(self: Combine, *given: Any) -> None:
        if len(opened) > owners:
            look(self, *given)

    monkeypatch.setattr(SourceOperator, "__init__", init)
    monkeypatch.setattr(Combine, "look", later_ones)

    def story(harness: PipelineHarness) -> None:
        harness.advance_processing_time(10**9)

    for every in (45, 50, 60, 80):
        opened.clear()
        assert_survives_crashes(pipeline(folder, True), story, every=every, run_sources=True)


@pytest.mark.parametrize("declared", [True, False])
def test_lists_of_values_and_of_bins_are_sent_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: Counter[str], declared: bool
) -> None:
    small_reads(monkeypatch, ALWAYS, 20)
    folder = written(tmp_path, {"a": events(300, 1), "b": events(250, 2)})
    path = folder / "lists.yaml"
    text = PIPELINE.format(folder=folder, fields=FIELDS if declared else "", windowing="", key="ad")
    path.write_text(text.replace("      most: {max: cost}\n", LISTS + LONG_LISTS, 1))
    lists: set[bool] = set()
    groups_of_node = ConsumerGroups.groups

    def grouped(self: ConsumerGroups, node: NodeName, batch: AnyBatch) -> AnyBatch | None:
        found = groups_of_node(self, node, batch)
        if node == "minutes" and found is not None:
            lists.add(isinstance(found, ColumnBatch) and bytes_of_lists(found.frame) > 0)
        return found

    monkeypatch.setattr(ConsumerGroups, "groups", grouped)
    found = []
    for rows in (False, True):
        with in_rows(rows), PipelineHarness(str(path), run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            found.append(
                {
                    "minutes": sorted(map(json.dumps, harness.read("minutes"))),
                    "counters": harness.counters,
                }
            )
    assert found[0] == found[1]
    assert len(found[0]["minutes"]) > 10
    assert True in lists


def combining_of_a_run(path: str) -> Combining | None:
    with PipelineHarness(path, run_sources=True, shards=1) as harness:
        [shard] = harness._cluster.shards_of("source.events")
        assert isinstance(shard.operator, SourceOperator)
        return shard.operator._parts.combining


@pytest.mark.parametrize(
    "change",
    [
        ("max_future: null}", "max_future: null}\n    id: {field: ad}"),
        ("mean: {mean: cost}", "mean: {first: cost}"),
        ("    output: minutes", "    late: {side: behind}\n    output: minutes"),
        ("    output: minutes", "    skew: scatter(4)\n    output: minutes"),
        ("    output: totals", "    output: totals\nsinks:\n  events: {stdout: {}}"),
        ("tumbling: 10s", "session: 2s"),
    ],
    ids=["ids", "order", "late records aside", "divided keys", "another consumer", "sessions"],
)
def test_where_a_consumer_needs_records_it_gets_records(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    path = Path(pipeline(written(tmp_path, {"a": []}), True))
    assert combining_of_a_run(str(path)) is not None
    path.write_text(path.read_text().replace(*change))
    assert combining_of_a_run(str(path)) is None


def test_lists_count_by_what_they_take_and_very_large_ones_do_not_travel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan: ColumnPlan = Lists()  # type: ignore[assignment]
    node, given = NodeName("n"), ConsumerGroups(plan, None)
    groups = given.groups(node, batch([1, 2, 1, 1]))
    assert groups is not None
    assert cost(groups) > 2
    monkeypatch.setattr(combining, "_MOST_LISTS", 8)
    assert given.groups(node, batch([1, 2, 1, 1])) is None


def batch(keys: list[int], value: int = 1) -> ColumnBatch:
    times = np.arange(len(keys))
    return ColumnBatch(
        "s", times, times, pl.Series("key", keys), pl.DataFrame({"n": [value] * len(keys)})
    )


class Counts:
    """A plan that counts by key."""

    combines = True
    inferred = ()

    def of_any(self, given: ColumnBatch) -> Counts:
        return self

    def group(self, given: ColumnBatch) -> pl.DataFrame:
        counted = given.keys.alias(KEY).to_frame().group_by(KEY, maintain_order=True).len(COUNT)
        return counted.with_columns(pl.lit(0).alias(START), pl.lit(10).alias(END))


class Lists(Counts):
    """A plan that keeps values by key."""

    def group(self, given: ColumnBatch) -> pl.DataFrame:
        values = pl.Series("a0", [[1, 2, 3, 4]], dtype=pl.List(pl.Int64))
        found = super().group(given)
        return found.with_columns(values.new_from_index(0, found.height))


def test_groups_hold_their_windows_open_and_are_one_for_each_key() -> None:
    plan: ColumnPlan = Counts()  # type: ignore[assignment]
    node = NodeName("n")
    found = Combining({node: ConsumerGroups(plan, None)}, ALWAYS).groups(
        [(node, batch([1, 2, 1, 1]))]
    )
    assert found is not None
    [groups] = found
    assert (groups.stream, groups.keys.to_list(), groups.frame[COUNT].to_list()) == (
        groups_of("n"),
        [1, 2],
        [3, 1],
    )
    assert groups.timestamps.tolist() == [9, 9]
    assert not len(groups.seqs)


def test_it_begins_with_few_groups_and_ends_with_many_or_few_records() -> None:
    plan: ColumnPlan = Counts()  # type: ignore[assignment]
    node = NodeName("n")
    combining = Combining(
        {node: ConsumerGroups(plan, None)},
        CombineLimits(least=16, looks=2, enters=1 / 8, leaves=1 / 2, pause=3),
    )

    def goes_on(keys: list[int]) -> bool:
        batches = [(node, batch(keys))]
        groups = combining.groups(batches)
        assert groups is not None
        return combine.goes_on(combining, groups, batches, len(keys))  # type: ignore[arg-type]

    def looked(keys: list[int]) -> bool:
        combine.look(combining, [(node, batch(keys))], len(keys))
        return combine.planned

    combine = Combine(False)
    assert not looked([1] * 15)  # too few to be looked at
    assert not looked([*range(16)])
    assert not looked([1] * 16)  # only each second is looked at
    assert looked([1, 2] * 8)
    combine.begin()
    assert combine.on
    assert not combine.planned
    assert goes_on([1, 2, 3, 4, 5, 6, 7, 8] * 2)
    assert not goes_on([1])
    assert not goes_on([*range(9), *range(7)])
    combine.leave()
    assert not combine.on
    assert [looked([1] * 16) for _ in range(3)] == [False, False, True]
