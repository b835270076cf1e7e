"""One case in one way on the real runtime: bundles, crashes, shards, caches and paths as the way
says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from millwheel.core.aggregates.families import distinct
from millwheel.core.columns.state import columns_to_rows, near_pairs
from millwheel.core.model.keys import check_key
from millwheel.core.pipeline.graph import NodeKind
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import DEAD_LETTERS, AggregationStage, PipelineSpec
from millwheel.core.pipeline.work import CallbackSpec, SlicesSpec
from millwheel.engine.queries.model import QueryError
from millwheel.engine.workers.delivery.combining import CombineLimits
from millwheel.engine.workers.host import computation_maker
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.operators import record_joins, suspension, waiting
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.keyed_joins import columns as keyed_columns
from millwheel.engine.workers.operators.keyed_joins import interval, regular, regular_columns
from millwheel.engine.workers.operators.ranked import columns as ranked_columns
from millwheel.engine.workers.operators.ranked import over_columns
from millwheel.engine.workers.operators.windows import change_log, join_columns
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.state import archive
from millwheel.language.spec.key_extractors import load_extractor
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.memory import cluster as cluster_module
from millwheel.tools.testing.memory.cluster import ClusterOptions, ManualClock, MemoryCluster
from millwheel.tools.testing.pushes import PushedStreams
from millwheel.tools.testing.rewiring import rewired
from tests.search.divided import as_whole, divided
from tests.search.edits import edited
from tests.search.questions import ConstantLookup, answers
from tests.search.removal import check_removed
from tests.search.script import Action, Case, Clock, Finish, Letter, Outcome, Push, Row, Watermark
from tests.search.streams import CaseStream
from tests.search.tables import SearchTaps
from tests.sim.replacing import replaced

_MOST = 100_000
# as if this were much for a join to hold, and many records to leave at once
_LARGE_BYTES, _PART = 100, 1
_CLOCK_UNITS = 3
"""A bundle is one unit: before the third one a push has reached the computations behind its
source."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a case is run. ``together``: 1 is one record at a time; more joins what one partition
    pushes in a row, up to so many records; 0 takes the pushes as they stand. ``crash_at`` is a
    share of all units of work. ``stop_at`` are the actions (as shares of the script) after which
    everything stops and other workers begin, as many as ``resized`` says (0: as before).
    ``service_lives``: the watermark service survives crashes."""

    name: str
    together: int = 0
    bundle: int = 20_000
    timers: int = 5_000
    shards: int = 1
    workers: int = 1
    crash_every: int | None = None
    crash_at: float | None = None
    stop_at: tuple[float, ...] = ()
    resized: int = 0
    columns: bool = True
    careful: bool = False
    cached: bool = True
    snapshot_bytes: int = 8192
    racing_clock: bool = False
    """The clock moves while the records that the script has behind its move are on their way."""
    service_lives: bool = False
    scatter: int = 1
    """Keys that can be divided are, over so many instances."""
    grouped: bool = False
    """By groupings, where they can be."""
    combined: bool = False
    """Groups are sent in place of records wherever they can be, and nowhere in the other ways."""
    large: bool = False
    """A few records are more than a join holds in columns, so they go on in rows, some keys in each
    bundle."""
    little: bool = False
    """Of results of joins there is room for one in each part of a bundle, and keys have too many
    pairs for one step soon."""
    edited: bool = False
    """From the first crash on the pipeline is another one, with which its root may go on."""
    warmed: bool = False
    """Plans have grouped made-up records before, as in a worker."""
    few: int = 0
    """Batches of fewer records are grouped in rows."""

    @property
    def crashes(self) -> bool:
        """Whether work is lost and done again."""
        return self.crash_every is not None or self.crash_at is not None or bool(self.stop_at)


@dataclass(frozen=True, slots=True)
class _Soon:
    """The clock goes on to ``t`` after so many units of work, in the midst of what comes next."""

    t: int
    units: int


class _Assembly(Assembly):
    """With columns switched off where the way wants rows."""

    rows_only = False

    def _column_plan(self, computation: Any) -> Any:
        return None if self.rows_only else super()._column_plan(computation)

    def _joined_by_bundle(self, spec: Any) -> Any:
        return None if self.rows_only else super()._joined_by_bundle(spec)


class _RowsOnly(_Assembly):
    rows_only = True


class Bench(PipelineHarness):
    """A harness that runs a case the way it is told."""

    def __init__(self, case: Case, way: Way, spec: PipelineSpec) -> None:
        self._sinks = {sink.stream for sink in spec.sinks}
        self.upserts = frozenset(
            sink.stream for sink in spec.sinks if sink.options.get("mode") == "upsert"
        )
        self.spec = _wired(case, spec)
        self._inputs = PushedStreams(
            self.spec, lambda stream: CaseStream(stream.name, case.stated, stream.fields)
        )
        self._taps = self._seen = SearchTaps(self.upserts)
        self._answers: dict[str, dict[Any, Any]] = {}
        self._pushes: dict[str, list[Row]] = {}
        self._closed = False
        self._stated, self._unseen = case.stated, False
        clock = ManualClock(case.now or 0)
        outside = Factories(
            self._inputs.build,
            self._taps.build,
            listed=self._inputs.listed,
            by_name=self._inputs.by_name,
            lookup=lambda spec, folder: ConstantLookup(),
        )
        kind = _Assembly if way.columns else _RowsOnly
        combine = (
            CombineLimits(least=1, looks=1, enters=9.0, leaves=9.0)
            if way.combined
            else CombineLimits()
        )
        # Types are inferred from full reads.
        bundle = min(way.bundle, 2) if "undeclared" in case.features else way.bundle
        sizes = ShardLimits(bundle=bundle, timers=way.timers, columns_from=1, rows_below=way.few)
        limits = replace(sizes, settle_us=0, gather_us=0, combine=combine)
        made = kind(self.spec, "", clock, outside, limits)
        if way.warmed:
            made.warm_up_plans()
        options = ClusterOptions(
            way.shards,
            way.workers,
            way.snapshot_bytes,
            way.crash_every,
            service_lives=way.service_lives,
        )
        taps = [node.name for node in made.graph.nodes.values() if node.kind is NodeKind.SINK]
        self._cluster = MemoryCluster(made.graph, made.make_shard, clock, options, taps)
        if way.edited:
            later = kind(_wired(case, edited(spec, case.seed)), "", clock, outside, limits)
            self._cluster.later = later.graph, later.make_shard

    def crash_after(self, unit: int | None) -> None:
        """Die after that unit of work, counted from the beginning."""
        self._cluster.options = replace(self._cluster.options, crash_at=unit)

    def resize(self, workers: int) -> None:
        """So many workers from the next life on."""
        self._cluster.options = replace(self._cluster.options, workers=workers)

    def move_clock_soon(self, t: int, units: int) -> None:
        """The clock goes on to ``t`` after so many units of work from now on, whatever they are
        about."""

        def work() -> None:
            if units > 0:
                self.move_clock_soon(t, units - 1)
            else:
                self._cluster.clock.now = max(t, self._cluster.clock.now)

        self._cluster.do_later(work)

    def append(self, push: Push) -> None:
        """Let records lie in the source without a look at it."""
        field = self.spec.stream(push.stream).id
        rows = [
            Row(value.get(field) if field else push.partition, 0, value) for value in push.values
        ]
        self._pushes.setdefault(push.stream, []).extend(rows)
        self._inputs.by_name[push.stream].push(push.values, push.partition)

    def do(self, action: Action | _Soon) -> None:
        """One action, and all that follows from it."""
        match action:
            case _Soon():
                self.move_clock_soon(action.t, action.units)
            case Push():
                self._see_silence()
                self.append(action)
                self._cluster.read([action.stream])
            case Watermark():
                self.advance_watermark(action.t, action.stream, action.partition)
            case Clock():
                self.advance_processing_time(max(action.t, self.now))
                self._unseen = not self._stated
            case Finish():
                self._answers = self._answers or self._asked()
                self.finish(action.stream)
        for computation in self.spec.computations:
            for shard in self._cluster.shards_of(computation.name):
                check_removed(shard)

    def _see_silence(self) -> None:
        """Sources look each two seconds. Without a look at the end of a move of the clock, silence
        would move the watermark by the rest together with the next record: whether before or behind
        it, depends on which shards have a partition (seed 903)."""
        if self._unseen:
            self._cluster.read(list(self._pushes))
        self._unseen = False

    def outcome(self) -> Outcome:
        """What has come of it so far."""
        letters = tuple(_letter(record.value) for record in self.records(DEAD_LETTERS))
        streams = self._visible()
        standing = {name: tuple(self._standing(name)) for name in self.upserts}
        return Outcome(
            streams,
            letters,
            standing,
            self._all_counters(),
            *self._remembered({**streams, **standing}),
        )

    def _visible(self) -> dict[str, tuple[Row, ...]]:
        return {
            sink.stream: tuple(Row(r.key, r.timestamp, r.value) for r in self.records(sink.stream))
            for sink in self.spec.sinks
            if sink.stream != DEAD_LETTERS and sink.stream not in self.upserts
        }

    def _standing(self, name: str) -> Iterator[Row]:
        for (stream, _), rows in sorted(self._seen.tables.items()):
            if stream == name:
                yield from rows

    def _all_counters(self) -> dict[str, dict[str, int]]:
        nodes = [f"source.{stream}" for stream in self._inputs.by_name] + [
            c.name for c in self.spec.computations
        ]
        counted = self._counted()
        return {node: {n: v for n, v in counted[node].items() if v} for node in nodes}

    def _remembered(
        self, streams: Mapping[str, tuple[Row, ...]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        state: dict[str, Any] = {}
        timers: dict[str, Any] = {}
        for computation in self.spec.computations:
            name = computation.name
            keys = sorted(self._keys(computation, streams), key=repr)
            if isinstance(computation.work, CallbackSpec):
                state[name] = {key: self.state(name, key) for key in keys}
            if isinstance(computation.work, SlicesSpec):
                # as of the end of input, of keys known by then
                state[name] = (self._answers or self._asked())[name]
            if computation.stage is AggregationStage.PARTIAL:
                continue  # its keys have instances
            timers[name] = {key: found for key in keys if (found := tuple(self.timers(name, key)))}
        return state, timers

    def _asked(self) -> dict[str, dict[Any, Any]]:
        """What slices answer, by computation and key."""
        found: dict[str, dict[Any, Any]] = {}
        for computation in self.spec.computations:
            if isinstance(computation.work, SlicesSpec):
                name, keys = computation.name, self._keys(computation, self._visible())
                found[name] = {key: answers(partial(self._one, name, key)) for key in keys}
        return found

    def _one(self, name: str, key: Any, length: int, until: int, mode: str) -> Any:
        try:
            answer = self.ask(name, key, length, until, mode)
        except QueryError as ex:
            assert ex.code == "beyond_keep"  # noqa: PT017
            return None
        return answer.values, answer.covered_start_us, answer.covered_end_us

    def _keys(self, computation: Any, streams: Mapping[str, tuple[Row, ...]]) -> set[Any]:
        found: set[Any] = set()
        if computation.stage is AggregationStage.FINAL:  # its keys are those of what its parts get
            (computation,) = (
                each
                for each in self.spec.computations
                if each.outputs == (computation.inputs[0].stream,)
            )
        for given in computation.inputs:
            extract = (
                None
                if given.key.kind is KeyKind.RECORD
                else load_extractor(given.key, self.spec.folder)
            )
            pushed = self._pushes.get(given.stream)
            rows = streams.get(given.stream, ()) if pushed is None else pushed
            for row in rows:
                try:
                    found.add(check_key(row.key if extract is None else extract(row.value)))
                except Exception:  # a record without a key has none
                    continue
        return found


def _wired(case: Case, spec: PipelineSpec) -> PipelineSpec:
    """The pipeline with what is pushed as its sources. Those that make their own watermark keep
    their options."""
    wired = rewired(spec, run_sources=False, check_future=case.now is not None)
    if not case.stated:  # a tap looks at records, and would keep them from being read as columns
        read = {stream.name for stream in spec.streams if stream.source is not None}
        wired = replace(wired, sinks=tuple(sink for sink in wired.sinks if sink.stream not in read))
    keys = {sink.stream: sink.key for sink in spec.sinks}
    sinks = tuple(replace(sink, key=keys.get(sink.stream, sink.key)) for sink in wired.sinks)
    idle = {stream.name: stream.idle_after_us for stream in spec.streams}
    streams = (
        wired.streams
        if case.stated
        else tuple(replace(s, idle_after_us=idle[s.name]) for s in wired.streams)
    )
    return replace(wired, streams=streams, sinks=sinks)


def _letter(value: Mapping[str, Any]) -> Letter:
    reason = value["reason"]
    return Letter(value["computation"], reason, value.get("value"))


def actions(case: Case, way: Way) -> list[Action]:
    """The script as the way bundles it. What one partition pushes in a row may be joined, because
    every partition is read in its order; nothing else changes places."""
    found: list[Action] = []
    for action in case.script:
        if not isinstance(action, Push) or not way.together:
            found.append(action)
        elif way.together == 1:
            found += [
                Push(action.stream, (value,), action.partition) for value in action.values
            ] or [action]
        elif found and _joins(found[-1], action, way.together):
            last = found.pop()
            assert isinstance(last, Push)
            found.append(Push(last.stream, last.values + action.values, last.partition))
        else:
            found.append(action)
    return found


def _joins(last: Action, action: Push, most: int) -> bool:
    same = isinstance(last, Push) and (last.stream, last.partition) == (
        action.stream,
        action.partition,
    )
    return same and isinstance(last, Push) and len(last.values) + len(action.values) <= most


def _raced(case: Case, script: Sequence[Action]) -> list[Action | _Soon]:
    """The clock moves during the push that follows, and surely behind it."""
    found: list[Action | _Soon] = []
    rng = Random(f"clock {case.seed}")
    clock: Clock | None = None
    for action in script:
        if isinstance(action, Push) and clock is not None:
            found += [_Soon(clock.t, rng.randrange(_CLOCK_UNITS)), action, clock]
            clock = None
            continue
        found += [clock] if clock is not None else []
        clock = action if isinstance(action, Clock) else None
        found += [] if clock is not None else [action]
    return [*found, *([clock] if clock is not None else [])]


def run(case: Case, way: Way, spec: PipelineSpec | None = None) -> Outcome:
    """What comes of a case in one way."""
    spec = divided(spec or case.spec(), way.scatter, case, way.grouped)
    crash_at = None
    if way.crash_at is not None:
        crash_at = max(1, int(_units(case, replace(way, crash_at=None), spec) * way.crash_at))
    with _paths(way), Bench(case, way, spec) as bench:
        bench.crash_after(crash_at)
        _go(bench, case, way)
        return bench.outcome() if way.scatter == 1 else as_whole(bench.outcome())


def _units(case: Case, way: Way, spec: PipelineSpec) -> int:
    with _paths(way), Bench(case, way, spec) as bench:
        _go(bench, case, way)
        return bench.units


def _go(bench: Bench, case: Case, way: Way) -> None:
    script = _raced(case, actions(case, way)) if way.racing_clock else actions(case, way)
    stops = {int(share * len(script)) for share in way.stop_at}
    for number, action in enumerate(script):
        if number in stops:
            bench.resize(way.resized or way.workers)
            bench.crash()
        bench.do(action)


@contextmanager
def _paths(way: Way) -> Iterator[None]:
    """The careful path and no caches, where they are wanted."""
    with ExitStack() as stack:
        stack.enter_context(replaced(cluster_module, "_ENDLESS", _MOST))
        if way.careful:
            stack.enter_context(replaced(CallbackOperator, "_run_fast", _never))
        if not way.cached:
            stack.enter_context(replaced(computation_maker, "_CACHE_ENTRIES", 0))
        if way.large:
            ranked = ranked_columns, over_columns
            for module in (join_columns, keyed_columns, change_log, *ranked, waiting):
                stack.enter_context(replaced(module, "_MOST_BYTES", _LARGE_BYTES))
            stack.enter_context(replaced(distinct, "_MOST_LISTED", 4))
            for module in (over_columns, waiting):
                stack.enter_context(replaced(module, "_FAN", 2))
            stack.enter_context(replaced(columns_to_rows, "PART_RECORDS", _PART))
            stack.enter_context(replaced(archive, "_BLOCK_BYTES", _LARGE_BYTES))
            stack.enter_context(replaced(archive, "_AT_ONCE", _PART))
        if way.little:
            stack.enter_context(replaced(suspension, "ROOM_BYTES", 1))
            stack.enter_context(replaced(suspension, "LEAST_BYTES", 1))
            stack.enter_context(replaced(suspension, "_MOST_WAITING", 3))
            stack.enter_context(replaced(near_pairs, "MOST_PAIR_BYTES", 1))
            stack.enter_context(replaced(near_pairs, "_FEW_PAIRS", 1))
            stack.enter_context(replaced(regular, "_FEW", 1))
            stack.enter_context(replaced(interval, "LEAST_BYTES", 1))
            stack.enter_context(replaced(interval, "_AT_ONCE", 1))
            stack.enter_context(replaced(interval, "_FEW", 1))
            stack.enter_context(replaced(regular_columns, "_MANY", 3))
            stack.enter_context(replaced(regular_columns, "_HOT", 2))
            stack.enter_context(replaced(join_columns, "LEAST_BYTES", 1))
            stack.enter_context(replaced(join_columns, "_MOST_PAIR_BYTES", 1))
            stack.enter_context(replaced(record_joins, "_PART_BYTES", 1))
        yield


def _never(operator: Any, bundle: Any) -> None:
    raise RuntimeError("the fast path is switched off")
