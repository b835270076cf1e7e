"""Divided keys of a run, from reports of its workers: one standing for each node whose keys are
divided. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from millwheel.core.grouping.observations import Division, HotKey, InstanceLoads
from millwheel.core.grouping.tables import imbalance
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec

_SHOWN = 10  # hot keys
_ONCE = ("tumbling", "sliding", "global")
"""Windows that emit one accumulator of a key and instance where they fire once."""


class InstanceStanding(msgspec.Struct, frozen=True):
    """One instance. ``records`` and ``busy_s`` are since the owner of its shard began; where a
    shard has several instances, its time is divided in proportion to their records. ``share`` is
    p_i, and ``time_s`` t_i: the means over all senders, None without any."""

    instance: int
    records: int
    busy_s: float
    share: float | None
    time_s: float | None


class DividedStanding(msgspec.Struct, frozen=True):
    """A node whose keys are divided, under the name that the pipeline file has. ``epoch`` is that
    of the sender that has made most tables. ``hot`` are the hottest keys, with their mean shares of
    the records that senders count. ``imbalance``: how far the busiest instance is above the mean,
    as a share of the mean (0 is even). ``copies``: how many instances hold a key of a window on
    average; None for windows whose copies are not counted."""

    node: str
    grouping: str
    epoch: int
    senders: int
    hot: tuple[HotKey, ...]
    instances: tuple[InstanceStanding, ...]
    imbalance: float
    copies: float | None


def divided_standings(
    graph: Graph, divisions: Sequence[Division], loads: Sequence[InstanceLoads]
) -> tuple[DividedStanding, ...]:
    """All of a pipeline, in the order of the graph."""
    return tuple(_standings(graph, divisions, loads))


def _standings(
    graph: Graph, divisions: Sequence[Division], loads: Sequence[InstanceLoads]
) -> Iterator[DividedStanding]:
    for node in graph.nodes.values():
        whole = node.computation
        if whole is None or whole.stage is not AggregationStage.FINAL:
            continue
        (parts,) = graph.feeders[node.name]
        computation = graph.nodes[parts].computation
        assert computation is not None
        own_divisions = [each for each in divisions if each.node == parts]
        instances = tuple(
            _instances(computation.inputs[0].key.instances, own_divisions, loads, parts)
        )
        yield DividedStanding(
            node.name,
            computation.inputs[0].key.divided.value,
            max((each.epoch for each in own_divisions), default=0),
            len(own_divisions),
            _hottest(own_divisions),
            instances,
            imbalance([each.busy_s for each in instances]),
            _copies(whole, parts, loads),
        )


def _instances(
    count: int, divisions: Sequence[Division], loads: Sequence[InstanceLoads], parts: str
) -> Iterator[InstanceStanding]:
    records, busy_s = [0] * count, [0.0] * count
    for load in loads:
        together = sum(load.records.values())
        for instance, own_records in (
            load.records.items() if load.node == parts and together else ()
        ):
            records[instance] += own_records
            busy_s[instance] += load.busy_s * own_records / together
    for instance in range(count):
        share = _mean(each.shares[instance] for each in divisions)
        time_us = _mean(each.times_us[instance] for each in divisions if each.times_us)
        time_s = None if time_us is None else time_us / 1e6
        yield InstanceStanding(instance, records[instance], busy_s[instance], share, time_s)


def _hottest(divisions: Sequence[Division]) -> tuple[HotKey, ...]:
    """A key that is not hot at some sender has nothing there."""
    by_key: dict[str, list[HotKey]] = {}
    for division in divisions:
        for hot in division.hot:
            by_key.setdefault(hot.key, []).append(hot)
    merged = [
        HotKey(
            key,
            sum(each.share for each in hot_keys) / len(divisions),
            max(each.instances for each in hot_keys),
        )
        for key, hot_keys in by_key.items()
    ]
    return tuple(sorted(merged, key=lambda each: -each.share)[:_SHOWN])


def _copies(whole: ComputationSpec, parts: str, loads: Sequence[InstanceLoads]) -> float | None:
    """Accumulators for each result, where one window of a key has one result and one accumulator of
    each instance."""
    work = whole.windowed
    if work is None or work.firing.trigger is not None or work.firing.allowed_lateness_us:
        return None
    if work.window.kind not in _ONCE or work.window.options.get("changes"):
        return None
    results = sum(load.produced for load in loads if load.node == whole.name)
    return sum(load.produced for load in loads if load.node == parts) / results if results else None


def _mean(values: Iterable[float | None]) -> float | None:
    present = [each for each in values if each is not None]
    return sum(present) / len(present) if present else None


def divided_lines(divided: Sequence[DividedStanding]) -> Iterator[str]:
    """The lines of ``millwheel status`` about them, one each."""
    for each in divided:
        busiest = max(each.instances, key=lambda instance: instance.busy_s)
        words = [f"{sum(instance.records for instance in each.instances):,} records"]
        if busiest.busy_s:
            words.append(f"imbalance {each.imbalance:.2f}, busiest instance {busiest.instance}")
        if each.hot:
            top = each.hot[0]
            words.append(
                f"{len(each.hot)} hot key{'s' if len(each.hot) > 1 else ''}, {top.key} has"
                f" {top.share:.0%}"
            )
        if each.copies is not None:
            words.append(f"{each.copies:.2f} copies of a key")
        epoch = f", epoch {each.epoch}" if each.senders else ""
        yield f"{each.node}: {each.grouping}({len(each.instances)}){epoch}: {', '.join(words)}"
