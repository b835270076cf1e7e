"""A whole pipeline in memory: push records, move watermark and clock, read streams, look at state,
crash.

    with PipelineHarness("visits.yaml") as harness:
        harness.push("visits", {"user": "ann", "page": "/", "time": 0})
        harness.crash()
        harness.advance_watermark(60_000_000)
        assert harness.take("page_minutes") == [...]

It is the real runtime: loops, shards, operators, commits, journals, recovery, watermark service.
Only its surroundings are replaced: processes, network, disk, clock, sources and sinks. Every time
is an int of µs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from millwheel.connect.own_functions import expressions_in, language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.model.failures import of_nodes, without_kinds
from millwheel.core.model.keys import Key, check_key
from millwheel.core.model.records import Domain, Record
from millwheel.core.pipeline.graph import NodeKind
from millwheel.core.pipeline.replays import Request
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    PipelineSpec,
)
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.pipeline.work import LookupSpec
from millwheel.core.windows.windows import Window
from millwheel.engine.letters import Binding, replayable
from millwheel.engine.queries.model import Answer
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.shard import Shard
from millwheel.engine.workers.state.keyed_state import callback_state
from millwheel.errors import MillwheelError
from millwheel.language.spec.reading.problems import unknown
from millwheel.tools.testing.arguments import check_partition, check_time, stamped
from millwheel.tools.testing.inspection import remembered, timers_of, window_state
from millwheel.tools.testing.lookups import Answers, fake_lookup
from millwheel.tools.testing.memory.cluster import ClusterOptions, ManualClock, MemoryCluster
from millwheel.tools.testing.pushes import DEFAULT_PARTITION, PushedStream, PushedStreams
from millwheel.tools.testing.questions import Question, ask
from millwheel.tools.testing.rewiring import rewired, spec_of, streams_of
from millwheel.tools.testing.taps import Taps

_DUPLICATES = "duplicates."


class PipelineHarness:
    """Runs ``pipeline``: the path of a YAML file, a PipelineSpec, or a Pipeline of the Python API.

    ``params`` are the values of its ``${parameters}``; parameters that only sources and sinks use
    need none. Nodes have ``shards`` shards each, spread over ``workers`` workers. With
    ``crash_every``, everything crashes after each this many units of work; with ``crash_at``, once,
    after that unit. The results stay the same. With ``run_sources`` the sources of the file run,
    and nothing can be pushed to them. ``now`` is the first time of the wall clock; without it, the
    clock starts at 0, and records may be any time ahead of it. ``lookups`` has answers, by
    computation, in place of other systems: ``{"priced": {"tea": {"cents": 80}}}``, or a function of
    the key.

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
        original = spec_of(pipeline, params)
        self._sinks = {sink.stream for sink in original.sinks}
        self.spec = rewired(original, run_sources=run_sources, check_future=now is not None)
        self._inputs = PushedStreams(self.spec, lambda stream: PushedStream(stream.name))
        self._taps = Taps()
        self._taken: Counter[str] = Counter()
        self._closed = False
        self._replayed: set[str] = set()
        looking_up = [each for each in self.spec.computations if isinstance(each.work, LookupSpec)]
        with expressions_in(language_of(self.spec)):
            self._lookups = {
                each.name: fake_lookup(each, self.spec.folder, lookups or {}) for each in looking_up
            }
        clock = ManualClock(0 if now is None else check_time(now, "now"))
        outside = Factories(
            self._inputs.build,
            self._taps.build,
            listed=self._inputs.listed,
            by_name=self._inputs.by_name,
            lookup=lambda spec, _: self._lookups[spec.name],
        )
        assembly = Assembly(self.spec, "", clock, outside, ShardLimits(settle_us=0, gather_us=0))
        options = ClusterOptions(shards, workers, crash_every=crash_every, crash_at=crash_at)
        taps = [node.name for node in assembly.graph.nodes.values() if node.kind is NodeKind.SINK]
        self._cluster = MemoryCluster(assembly.graph, assembly.make_shard, clock, options, taps)

    # --- input ------------------------------------------------------------------------------------

    def push(
        self, stream: str, value: Any, timestamp: int | None = None, key: str | None = None
    ) -> None:
        """Push one record, or a list of records that arrive together, to a stream with a source.

        They are processed like all input: timestamps, types, ids, lateness, and the keys of
        consumers. ``timestamp`` (µs) is written into the stream's timestamp field of records that
        do not have it. ``key`` is for consumers without a key of their own: the name of the file or
        partition of the records.
        """
        self._open()
        source = self._inputs.taking(stream, "pushed to")
        values = value if isinstance(value, list) else [value]
        if timestamp is not None:
            spec = self.spec.stream(source.name)
            values = [stamped(each, spec, check_time(timestamp, "timestamp")) for each in values]
        source.push(values, DEFAULT_PARTITION if key is None else check_partition(key))
        self._cluster.read([source.name])

    def advance_watermark(self, t: int, stream: str | None = None, key: str | None = None) -> None:
        """State that no record of ``stream`` (of all streams with a source) before ``t`` will
        follow, except late ones. With a ``key``, this holds for that partition (see :meth:`push`);
        the stream waits for its other partitions."""
        check_time(t, "the watermark")
        partition = None if key is None else check_partition(key)
        self._open()
        streams = self._inputs.chosen(stream)
        for each in streams:
            before = each.highest_watermark() if partition is None else each.watermark_of(partition)
            if t < before:
                raise ValueError(
                    f"a watermark never goes back: that of {declared_name(each.name)!r} is"
                    f" {before}, and {t} is before that"
                )
        for each in streams:
            each.state_watermark(t, partition)
        self._cluster.read([each.name for each in streams])

    def finish(self, stream: str | None = None) -> None:
        """End the input, like that of a bounded source: every window closes, every timer fires."""
        self._open()
        streams = self._inputs.chosen(stream)
        for each in streams:
            each.finish()
        self._cluster.read([each.name for each in streams])

    def advance_processing_time(self, t: int) -> None:
        """Move the wall clock to ``t``; timers fire one after the other as it passes them."""
        now = self._open().clock.now
        if check_time(t, "the clock") < now:
            raise ValueError(f"the clock is at {now} and cannot go back to {t}")
        self._cluster.advance_clock(t)
        by_clock = [stream.name for stream in self.spec.streams if stream.arrival]
        self._cluster.read([name for name in by_clock if name in self._inputs.by_name])

    def replay(self) -> int:
        """Retry the dead letters that were not retried yet, as ``millwheel replay`` does. Returns
        their number."""
        count = len(self._replayed)
        values = [record.value for record in self.records(DEAD_LETTERS)]
        letters = [replayable(value, f"letter:{number}") for number, value in enumerate(values, 1)]
        requested = [
            letter.requested()
            for letter in letters
            if letter.again and letter.id not in self._replayed
        ]
        self._replayed |= {each.letter for each in requested}
        if requested:
            order = Binding(self.spec).order(Request(f"harness{count}", requested))
            self._cluster.order(order)
        return len(requested)

    def crash(self) -> None:
        """Kill everything, lose all that is not durable, and restart from journals and
        snapshots."""
        self._open().crash()
        self._cluster.settle()

    def close(self) -> None:
        """Release the resources of the shards, once it is certain that they hold together (see
        :meth:`MemoryCluster.validate`). The harness cannot be used afterwards; closing it again
        does nothing."""
        if not self._closed:
            self._cluster.validate()
        self._release()

    def _release(self) -> None:
        if not self._closed:
            self._closed = True
            for shard in self._cluster.shards.values():
                shard.close()

    def __enter__(self) -> PipelineHarness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._release()

    # --- output -----------------------------------------------------------------------------------

    def read(self, stream: str) -> list[Any]:
        """The values of all records of a stream so far, as a sink would write them. Values of one
        key are in order."""
        return [record.value for record in self.records(stream)]

    def take(self, stream: str) -> list[Any]:
        """The values since the last ``take`` of this stream."""
        values = self.read(stream)
        position, self._taken[stream] = self._taken[stream], len(values)
        return values[position:]

    def records(self, stream: str) -> list[Record]:
        """All records of a stream so far, with key and timestamp."""
        self._open()
        names = [sink.stream for sink in self.spec.sinks]
        if stream not in names:
            if stream in streams_of(self.spec):
                raise ValueError(
                    f"what the source of {stream!r} reads is not kept; give the pipeline a sink"
                    " for it"
                )
            raise ValueError(unknown("stream", stream, names))
        return [
            Record(each.key, each.value, each.timestamp, stream)
            for each in self._taps.visible[stream]
        ]

    # --- looking in -------------------------------------------------------------------------------

    def state(self, computation: str, key: Key) -> dict[str, Any]:
        """The state of a computation for a key: each declared state by name, without expired
        entries. For an aggregation, its slots: empty once all windows of the key are collected."""
        spec = _computation(self.spec, computation)
        store = self._shard(computation, key).store
        if spec.called is not None:
            kind, now = (
                load_object(spec.called.callback, self.spec.folder),
                self.watermark(computation),
            )
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
        """The answer of a running pipeline to a question about a computation, one value of it
        ("clicks.n"), a named query, or a formula ("clicks.spend / clicks.n"), whose value is called
        "value". ``window`` is a length ("3h", or µs), ``until`` its end (µs; default: now). Raises
        QueryError."""
        return ask(
            self._open(),
            Question(indicator, check_key(key), window, until, mode),
            self.spec,
        )

    def open_windows(self, computation: str, key: Key) -> list[Window]:
        """The windows of a key that hold state and still take records, ordered by end."""
        _computation(self.spec, computation)
        operator = self._shard(computation, key).operator
        if not isinstance(operator, (WindowedOperator, ColumnOperator)):
            raise ValueError(
                f"{computation} has no windows; look at state({computation!r}, {key!r})"
            )
        return operator.open_windows(check_key(key))

    def timers(self, computation: str, key: Key) -> list[tuple[Domain, str, int]]:
        """The timers of a key: (domain, tag, time), in the order of their times."""
        _computation(self.spec, computation)
        return timers_of(self._shard(computation, key).store, check_key(key))

    def watermark(self, computation: str) -> int:
        """The time up to which the input of a computation is complete (µs)."""
        _computation(self.spec, computation)
        return min(shard.watermark.input for shard in self._open().shards_of(computation))

    @property
    def counters(self) -> dict[str, int]:
        """All counters, as in the summary of a run: ``records_in``, ``late``, ``dead_letters``,
        …"""
        totals: Counter[str] = Counter()
        duplicates: Counter[str] = Counter()
        for counted in self._counted().values():
            for name, count in counted.items():
                if name.startswith(_DUPLICATES):
                    duplicates[name] = max(duplicates[name], count)
                else:
                    totals[name] += count
        if duplicates:
            totals["duplicates"] = sum(duplicates.values())
        return dict(totals)

    def counters_of(self, computation: str) -> dict[str, int]:
        """The counters of one computation."""
        _computation(self.spec, computation)
        return self._counted()[computation]

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
        return {c.name: remembered(cluster.shards_of(c.name)) for c in self.spec.computations}

    # --- inside -----------------------------------------------------------------------------------

    def _open(self) -> MemoryCluster:
        if self._closed:
            raise MillwheelError("this harness is closed; make a new one")
        return self._cluster

    def _shard(self, computation: str, key: Key) -> Shard:
        hashed = self._cluster.graph.hash_of(computation)
        return self._open().shard_of(computation, hashed(check_key(key)))

    def _counted(self) -> dict[str, dict[str, int]]:
        """The counters of each node; none of a sink that belongs to the harness."""
        cluster, counted = self._open(), {}
        for name, node in cluster.graph.nodes.items():
            counted[name] = of_shards = Counter[str]()
            if node.sink is None or node.sink.stream in self._sinks:
                for shard in cluster.shards_of(name):
                    of_shards.update(shard.meta.counters)
        return {name: without_kinds(own) for name, own in of_nodes(counted).items()}


def _computation(spec: PipelineSpec, name: str) -> ComputationSpec:
    computation = next((each for each in spec.computations if each.name == name), None)
    if computation is None:
        raise ValueError(unknown("computation", name, [each.name for each in spec.computations]))
    return computation
