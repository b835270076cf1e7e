"""A whole pipeline in memory: push records, move watermark and clock, read streams, look at state, crash.

    with PipelineHarness("visits.yaml") as harness:
        harness.push("visits", {"user": "ann", "page": "/", "time": 0})
        harness.crash()
        harness.advance_watermark(60_000_000)
        assert harness.take("page_minutes") == [...]

It is the real runtime: loops, shards, operators, commits, journals, recovery, watermark service. Only its surroundings
are replaced: processes, network, disk, clock, sources and sinks. Every time is an int of µs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from millwheel.core.model.failures import without_kinds
from millwheel.core.model.keys import Key, check_key
from millwheel.core.model.records import Domain, Record
from millwheel.core.pipeline.graph import NodeKind
from millwheel.core.pipeline.replays import Request
from millwheel.core.pipeline.spec import DEAD_LETTERS, ComputationSpec, PipelineSpec, SourceSpec, StreamSpec
from millwheel.core.windows.windows import Window
from millwheel.errors import MillwheelError
from millwheel.letters.letters import replayable
from millwheel.letters.replays import Binding
from millwheel.ports import StateStore
from millwheel.python_objects import load_object
from millwheel.queries.model import Answer
from millwheel.sources import build_source
from millwheel.sources.base import Source
from millwheel.spec.reading.problems import unknown
from millwheel.testing import pushed
from millwheel.testing.arguments import check_partition, check_time, stamped
from millwheel.testing.asking import Question, ask
from millwheel.testing.inspection import remembered, timers_of, window_state
from millwheel.testing.lookups import Answers, fake_lookup
from millwheel.testing.memory.cluster import ClusterOptions, ManualClock, MemoryCluster
from millwheel.testing.pushed import DEFAULT_PARTITION, PushedStream
from millwheel.testing.rewiring import rewired, spec_of, streams_of
from millwheel.testing.taps import Taps
from millwheel.workers.host.assembly import Assembly, Factories
from millwheel.workers.operators.columns import ColumnOperator
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.shard.bundle_sizes import ShardLimits
from millwheel.workers.shard.shard import Shard
from millwheel.workers.sources.source import SourceOperator
from millwheel.workers.state.keyed_state import callback_state

_DUPLICATES = "duplicates."


class PipelineHarness:
    """Runs ``pipeline``: the path of a YAML file, a PipelineSpec, or a Pipeline of the Python API.

    ``params`` are the values of its ``${parameters}``; parameters that only sources and sinks use need none. Nodes have
    ``shards`` shards each, spread over ``workers`` workers. With ``crash_every``, everything crashes after each this
    many units of work; with ``crash_at``, once, after that unit. The results stay the same. With ``run_sources`` the
    sources of the file run, and nothing can be pushed to them. ``now`` is the first time of the wall clock; without it,
    the clock starts at 0, and records may be any time ahead of it. ``lookups`` has answers, by computation, in place of
    other systems: ``{"priced": {"tea": {"cents": 80}}}``, or a function of the key.

    Each call returns when nothing is left to do. Raises PipelineError for an invalid pipeline.
    """

    def __init__(
        self,
        pipeline: str | os.PathLike[str] | PipelineSpec | Any,
        *,
        params: Mapping[str, Any] | None = None,
        shards: int = 2,
        workers: int = 2,
        crash_every: int | None = None,
        crash_at: int | None = None,
        run_sources: bool = False,
        now: int | None = None,
        lookups: Mapping[str, Answers] | None = None,
    ) -> None:
        given = spec_of(pipeline, params)
        self._sinks = {sink.stream for sink in given.sinks}
        self.spec = rewired(given, run_sources=run_sources, check_future=now is not None)
        self._pushed = {s.name: PushedStream(s.name) for s in self.spec.streams if _is_pushed(s)}
        self._taps = Taps()
        self._taken: Counter[str] = Counter()
        self._listed: dict[str, Sequence[Any]] = {}
        self._closed = False
        self._replayed: set[str] = set()
        looking_up = [each for each in self.spec.computations if each.lookup is not None]
        self._lookups = {each.name: fake_lookup(each, self.spec.folder, lookups or {}) for each in looking_up}
        clock = ManualClock(0 if now is None else check_time(now, "now"))
        outside = Factories(
            self._source,
            self._taps.build,
            listed=self._partitions,
            by_name=self._pushed,
            lookup=lambda spec, _: self._lookups[spec.name],
        )
        assembly = Assembly(self.spec, "", clock, outside, ShardLimits(settle_us=0, company_us=0))
        options = ClusterOptions(shards, workers, crash_every=crash_every, crash_at=crash_at)
        taps = [node.name for node in assembly.graph.nodes.values() if node.kind is NodeKind.SINK]
        self._cluster = MemoryCluster(assembly.graph, assembly.make_shard, clock, options, taps)

    # --- input -------------------------------------------------------------------------------------------

    def push(self, stream: str, value: Any, timestamp: int | None = None, key: str | None = None) -> None:
        """Push one record, or a list of records that arrive together, to a stream with a source.

        They are processed like all input: timestamps, types, ids, lateness, and the keys of consumers. ``timestamp``
        (µs) is written into the stream's timestamp field of records that do not have it. ``key`` is for consumers
        without a key of their own: the name of the file or partition of the records.
        """
        source = self._source_stream(stream, "pushed to")
        values = value if isinstance(value, list) else [value]
        if timestamp is not None:
            spec = self.spec.stream(stream)
            values = [stamped(each, spec, check_time(timestamp, "timestamp")) for each in values]
        source.push(values, DEFAULT_PARTITION if key is None else check_partition(key))
        self._look([source])

    def advance_watermark(self, t: int, stream: str | None = None, key: str | None = None) -> None:
        """State that no record of ``stream`` (of all streams with a source) before ``t`` will follow, except late ones.
        With a ``key``, this holds for that partition (see :meth:`push`); the stream waits for its other partitions."""
        check_time(t, "the watermark")
        partition = None if key is None else check_partition(key)
        streams = self._chosen(stream)
        for each in streams:
            before = each.highest_watermark() if partition is None else each.watermark_of(partition)
            if t < before:
                raise ValueError(
                    f"a watermark never goes back: that of {each.name!r} is {before}, and {t} is before that"
                )
        for each in streams:
            each.state_watermark(t, partition)
        self._look(streams)

    def finish(self, stream: str | None = None) -> None:
        """End the input, like that of a bounded source: every window closes, every timer fires."""
        streams = self._chosen(stream)
        for each in streams:
            each.finish()
        self._look(streams)

    def advance_processing_time(self, t: int) -> None:
        """Move the wall clock to ``t``; timers fire one after the other as it passes them."""
        now = self._open().clock.now
        if check_time(t, "the clock") < now:
            raise ValueError(f"the clock is at {now} and cannot go back to {t}")
        self._cluster.advance_clock(t)

    def replay(self) -> int:
        """Retry the dead letters that were not retried yet, as ``millwheel replay`` does. Returns their number."""
        known = len(self._replayed)
        values = [record.value for record in self.records(DEAD_LETTERS)]
        letters = [replayable(value, f"letter:{number}") for number, value in enumerate(values, 1)]
        wanted = [letter.wanted() for letter in letters if letter.again and letter.id not in self._replayed]
        self._replayed |= {each.letter for each in wanted}
        if wanted:
            order = Binding(self.spec).order(Request(f"harness{known}", wanted))
            self._cluster.order(order)
        return len(wanted)

    def crash(self) -> None:
        """Kill everything, lose all that is not durable, and restart from journals and snapshots."""
        self._open().crash()
        self._cluster.settle()

    def close(self) -> None:
        """Release the resources of the shards. The harness cannot be used afterwards; closing it again does nothing."""
        if not self._closed:
            self._closed = True
            for shard in self._cluster.shards.values():
                shard.close()

    def __enter__(self) -> PipelineHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- output ------------------------------------------------------------------------------------------

    def read(self, stream: str) -> list[Any]:
        """The values of all records of a stream so far, as a sink would write them. Values of one key are in order."""
        return [record.value for record in self.records(stream)]

    def take(self, stream: str) -> list[Any]:
        """The values since the last ``take`` of this stream."""
        values = self.read(stream)
        taken, self._taken[stream] = self._taken[stream], len(values)
        return values[taken:]

    def records(self, stream: str) -> list[Record]:
        """All records of a stream so far, with key and timestamp."""
        self._open()
        known = [sink.stream for sink in self.spec.sinks]
        if stream not in known:
            if stream in streams_of(self.spec):
                raise ValueError(f"what the source of {stream!r} reads is not kept; give the pipeline a sink for it")
            raise ValueError(unknown("stream", stream, known))
        return [Record(each.key, each.value, each.timestamp, stream) for each in self._taps.visible[stream]]

    # --- looking in --------------------------------------------------------------------------------------

    def state(self, computation: str, key: Key) -> dict[str, Any]:
        """The state of a computation for a key: each declared state by name, without expired entries.
        For an aggregation, its slots: empty once all windows of the key are collected."""
        spec = self._computation(computation)
        store = self._store(computation, key)
        if spec.callback:
            kind, now = load_object(spec.callback, self.spec.folder), self.watermark(computation)
            return callback_state(kind, store, check_key(key), now)
        return window_state(store, check_key(key), self._cluster.graph.hash_of(computation))

    def ask(
        self,
        indicator: str,
        key: Key,
        window: str | int | None = None,
        until: int | None = None,
        mode: str = "covering",
    ) -> Answer:
        """The answer of a running pipeline to a question about a computation, or one value of it ("clicks.n").
        ``window`` is a length ("3h", or µs), ``until`` its end (µs; default: now). Raises QueryError."""
        return ask(self._open(), Question(indicator, check_key(key), window, until, mode), self.spec.queries)

    def open_windows(self, computation: str, key: Key) -> list[Window]:
        """The windows of a key that hold state and still take records, ordered by end."""
        self._computation(computation)
        operator = self._shard(computation, key).operator
        if not isinstance(operator, (WindowedOperator, ColumnOperator)):
            raise ValueError(f"{computation} has no windows; look at state({computation!r}, {key!r})")
        return operator.open_windows(check_key(key))

    def timers(self, computation: str, key: Key) -> list[tuple[Domain, str, int]]:
        """The timers of a key: (domain, tag, time), in the order of their times."""
        self._computation(computation)
        return timers_of(self._store(computation, key), check_key(key))

    def watermark(self, computation: str) -> int:
        """The time up to which the input of a computation is complete (µs)."""
        self._computation(computation)
        return min(shard.watermark.input for shard in self._open().shards_of(computation))

    @property
    def counters(self) -> dict[str, int]:
        """All counters, as in the summary of a run: ``records_in``, ``late``, ``dead_letters``, …"""
        totals: Counter[str] = Counter()
        duplicates: Counter[str] = Counter()
        for node in self._open().graph.nodes:
            for name, count in self._counted(node).items():
                if name.startswith(_DUPLICATES):
                    duplicates[name] = max(duplicates[name], count)
                else:
                    totals[name] += count
        if duplicates:
            totals["duplicates"] = sum(duplicates.values())
        return dict(totals)

    def counters_of(self, computation: str) -> dict[str, int]:
        """The counters of one computation."""
        self._computation(computation)
        self._open()
        return self._counted(computation)

    @property
    def now(self) -> int:
        """The time of the wall clock (µs)."""
        return self._cluster.clock.now

    @property
    def units(self) -> int:
        """Units of work done so far, as ``crash_at`` counts them."""
        return self._cluster.units

    @property
    def crashes(self) -> int:
        """The number of crashes so far."""
        return self._cluster.crashes

    def remembered(self) -> dict[str, dict[bytes, bytes]]:
        """All state and timers of each computation as stored, to compare one run with another."""
        cluster = self._open()
        return {c.name: remembered(shard.store for shard in cluster.shards_of(c.name)) for c in self.spec.computations}

    # --- inside ------------------------------------------------------------------------------------------

    def _open(self) -> MemoryCluster:
        if self._closed:
            raise MillwheelError("this harness is closed; make a new one")
        return self._cluster

    def _look(self, streams: Sequence[PushedStream]) -> None:
        cluster = self._open()
        for stream in streams:
            for shard in cluster.shards_of(f"source.{stream.name}"):
                assert isinstance(shard.operator, SourceOperator)
                cluster.tell(shard, shard.operator.look)
        cluster.look()

    def _chosen(self, stream: str | None) -> list[PushedStream]:
        if stream is not None:
            return [self._source_stream(stream, "given a watermark")]
        if not self._pushed:
            raise ValueError("with run_sources the sources of the pipeline move their watermarks themselves")
        return [each for each in self._pushed.values() if not each.bounded]

    def _source_stream(self, name: str, what: str) -> PushedStream:
        self._open()
        found = self._pushed.get(name)
        if found is None:
            raise ValueError(self._why_not(name, what))
        if found.bounded:
            raise ValueError(f"{name} was finished: nothing more can come")
        return found

    def _why_not(self, name: str, what: str) -> str:
        maker = next((c.name for c in self.spec.computations if name in c.outputs), None)
        if maker is not None:
            return f"{name!r} cannot be {what}: the computation {maker!r} produces it. {self._advice()}"
        if name in {stream.name for stream in self.spec.streams}:
            return f"{name!r} cannot be {what}: its own source runs (run_sources=True)"
        return unknown("stream", name, list(self._pushed), "Streams with a source")

    def _advice(self) -> str:
        return f"Push to a stream with a source: {', '.join(self._pushed) or 'there is none'}"

    def _computation(self, name: str) -> ComputationSpec:
        found = next((each for each in self.spec.computations if each.name == name), None)
        if found is None:
            raise ValueError(unknown("computation", name, [each.name for each in self.spec.computations]))
        return found

    def _shard(self, computation: str, key: Key) -> Shard:
        hashed = self._cluster.graph.hash_of(computation)
        return self._open().shard_of(computation, hashed(check_key(key)))

    def _store(self, computation: str, key: Key) -> StateStore:
        return self._shard(computation, key).store

    def _counted(self, node: str) -> dict[str, int]:
        graph, counted = self._cluster.graph, Counter[str]()
        sink = graph.nodes[node].sink
        if sink is None or sink.stream in self._sinks:
            for shard in self._cluster.shards_of(node):
                counted.update(without_kinds(shard.meta.counters))
        return dict(counted)

    def _source(self, spec: SourceSpec, folder: str, schema: Any, fields: Mapping[str, str]) -> Any:
        if spec.kind == pushed.KIND:
            return self._pushed[spec.options["stream"]].typed(schema, fields)
        return build_source(spec, folder, schema, fields)

    def _partitions(self, stream: str, source: Source) -> Sequence[Any]:
        if stream in self._pushed:
            return source.partitions()
        if stream not in self._listed:
            self._listed[stream] = source.partitions()
        return self._listed[stream]


def _is_pushed(stream: StreamSpec) -> bool:
    return stream.source is not None and stream.source.kind == pushed.KIND
