"""A reference for what pipelines mean: the semantics once more, written from the docs, slowly and
plainly.

One record at a time, in plain dicts and lists, with no bundles, caches, shards, journals or
crashes. It shares with the runtime what reads a pipeline (the parsed spec, expressions, extractors
of keys), the users' code, the sketches, and the values that flow. Windows, triggers, panes, timers,
times to live, order, joins, enrichment, copies and watermarks are written anew, each in a file of
its own.

    outcome = interpret(case.spec(), case.script, stated=case.stated, now=case.now).outcome()

**Where the docs leave freedom, the outcome is one of those that are right.** Who compares must know
these:

- *Order.* Rows of a stream are in the order of this run. Promised is only the order of what one key
  of one producer makes for one key. Where records of several partitions, streams or producers meet,
  the reference takes them in the order of the script and breadth first; a callback without
  ``order_by``, ``collect``, ``first`` and ``last`` of equal times, count windows, ``deduplicate``
  and ``as_of: arrival`` may show another order.
- *Between records and time.* What follows from a record happens before the watermark rises, and a
  watermark jumps in one step. Behind a computation that makes several records out of one jump, the
  runtime may let the watermark rise between them: timers of a callback there may fire between these
  records. ``order_by`` takes this freedom away.
- *Counting triggers* (``after_count``, ``after_bytes``, triggers of the user's) are asked after
  each record here, and once per bundle in the runtime: early and late panes may be fewer there.
  What all panes of a window hold together is the same: the last one (``accumulating``), the sum
  (``discarding``), what stands (``retracting``). So is ``late: refire``.
- *Timestamps without a record*: what a wall-clock timer produces, and dead letters, have the time
  of the output watermark, which in the runtime is that of a shard. They are a lower bound nowhere;
  do not compare them, nor windows behind them.
- *Percentile watermarks* depend on shards. Here every share is all of the input.
- *Ids* are forgotten some time after the horizon. Where that decides, ``unsure`` is True, and the
  outcome one of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import SlicesSpec
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, in_order
from tests.search.reference.groupings import windowed
from tests.search.reference.slices import SlicesNode
from tests.search.reference.sources import SourceNode
from tests.search.reference.tables import standing
from tests.search.reference.transforms import built
from tests.search.reference.typed_fields import as_shown
from tests.search.script import Action, Clock, Finish, Outcome, Push, Watermark

__all__ = ["Reference", "interpret"]


def _node(world: World, computation: ComputationSpec) -> CallNode:
    if isinstance(computation.work, SlicesSpec):
        return SlicesNode(world, computation)
    return (built if computation.windowed is None else windowed)(world, computation)


class Reference:
    """A pipeline that is told, action by action, what happens outside."""

    def __init__(self, spec: PipelineSpec, *, stated: bool = True, now: int | None = None) -> None:
        self.spec = spec
        self._world = world = World(spec, 0 if now is None else now)
        self._asked: Callable[[str, Any], dict[str, Any]] | None = None
        self._sources: dict[str, SourceNode] = {}
        for stream in spec.streams:
            if stream.source is not None:
                source = SourceNode(world, stream, stated, now is not None)
                self._sources[stream.name] = world.nodes[source.name] = source
        for computation in in_order(spec.computations):
            world.nodes[computation.name] = _node(world, computation)
        world.connect()

    def run(self, action: Action) -> None:
        """One action, and all that follows."""
        if isinstance(action, Push):
            for value in action.values:
                self._sources[action.stream].push(value, action.partition)
                self._world.settle()
        elif isinstance(action, Watermark):
            for source in self._chosen(action.stream):
                source.state_watermark(action.t, action.partition)
            self._world.settle()
        elif isinstance(action, Clock):
            self._world.advance_clock(action.t)
        elif isinstance(action, Finish):
            self._ask()
            for source in self._chosen(action.stream):
                source.ended = True
            self._world.settle()

    def _ask(self) -> None:
        """Slices are asked before the input ends: how much of them expires then, nobody says."""
        if self._asked is None:
            self._asked = lambda name, key: frozen[name](key)
            frozen = {
                name: node.frozen()
                for name, node in self._world.nodes.items()
                if isinstance(node, SlicesNode)
            }

    @property
    def unsure(self) -> bool:
        """Whether there was a copy of which nobody knows whether it is remembered."""
        return self._world.unsure

    @property
    def clocked(self) -> frozenset[str]:
        """Streams with records whose timestamp is not determined."""
        return frozenset(self._world.clocked)

    def rows(self, stream: str) -> list[Any]:
        """The values of a stream so far."""
        return [row.value for row in self._world.rows.get(stream, ())]

    def watermark(self, computation: str) -> int:
        """Up to where the input of a computation is complete."""
        return self._world.nodes[computation].watermark

    def state(self, computation: str, key: Any) -> dict[str, Any]:
        """What a computation remembers of a key, defaults included."""
        node = self._world.nodes[computation]
        if self._asked is not None and isinstance(node, SlicesNode):
            return self._asked(computation, key)
        assert isinstance(node, CallNode)
        return node.state_of(key)

    def outcome(self) -> Outcome:
        """What came of all actions so far."""
        world = self._world
        calls = {name: node for name, node in world.nodes.items() if isinstance(node, CallNode)}
        users = {name: node for name, node in calls.items() if node.spec.called}
        scales = self.spec.scales
        shown = {
            name: [replace(row, value=as_shown(row.value, scales[name])) for row in rows]
            if name in scales
            else rows
            for name, rows in world.rows.items()
        }
        return Outcome(
            streams={name: tuple(rows) for name, rows in shown.items()},
            letters=tuple(world.letters),
            standing={
                sink.stream: standing(sink, shown.get(sink.stream, ()))
                for sink in self.spec.sinks
                if sink.options.get("mode") == "upsert"
            },
            counters={name: dict(node.counters) for name, node in world.nodes.items()},
            state={name: node.state() for name, node in users.items()},
            timers={name: node.waiting() for name, node in users.items()},
        )

    def _chosen(self, stream: str | None) -> list[SourceNode]:
        return list(self._sources.values()) if stream is None else [self._sources[stream]]


def interpret(
    spec: PipelineSpec, script: Sequence[Action], *, stated: bool = True, now: int | None = None
) -> Reference:
    """A pipeline after a script. ``stated`` and ``now`` are as in
    :class:`tests.search.script.Case`."""
    reference = Reference(spec, stated=stated, now=now)
    for action in script:
        reference.run(action)
    return reference
