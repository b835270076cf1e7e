"""What the documents leave free: the one place that says which results of a pipeline must be equal in which runs.

Everything else in the search takes it from here. Each rule points at the sentence that it stands for.

A script lets everything come to rest before its next action (see ``script.py``), so what a source pushes is processed
in the order of the script, and the watermark and the clock stand still meanwhile. What is left to chance is what
happens within one action: how records are bundled, and which of several ways to a computation is the quicker one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    KeyKind,
    KeySpec,
    PipelineSpec,
    Productions,
    StreamSpec,
)
from millwheel.python_objects import load_object


class Level(IntEnum):
    """How much of a stream is determined."""

    NOTHING = 0
    STANDING = 1
    """What stands in the end: the rows that were not taken back or replaced."""
    ALL = 2
    """Every row."""


class Order(IntEnum):
    """Which rows of a stream have an order."""

    NONE = 0
    KEY = 1
    """Those of one key of their producer."""
    WHOLE = 2
    """All, whatever the key: what is pushed."""


class Placed(IntEnum):
    """How records come among the event-time timers of a callback (guarantees.md, Order)."""

    BY_ARRIVAL = 0
    BY_SENDER = 1
    """Those of one key of their producer in one order with them."""
    BY_POSITION = 2
    """In the order of the only partition that they come from."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is determined of a stream. ``keyed``: by what its producer keyed it. ``paced``: its rows come only while the
    watermark stands still. ``timely``: rows that come while the watermark moves are not behind it. ``single``: one
    record at a time stays one at a time on the way here. ``retracts``: it takes rows back."""

    level: Level = Level.ALL
    order: Order = Order.WHOLE
    keyed: KeySpec | None = None
    paced: bool = True
    timely: bool = True
    single: bool = True
    timed: bool = True
    """Its rows have the same timestamps, too."""
    retracts: bool = False
    placed: Placed = Placed.BY_ARRIVAL
    doubled: bool = False
    """After a crash some rows may come twice (weak productions of an at-least-once computation)."""


@dataclass(frozen=True, slots=True)
class Free:
    """What differs between the runs that are compared: how records are bundled, whether work is lost and done again,
    whether partitions race each other (as they do in the simulator)."""

    bundling: bool = True
    crashing: bool = False
    racing: frozenset[str] | None = None
    """Streams race each other, and the wall clock is another one; named are those with several partitions."""
    uneven: frozenset[str] = frozenset()
    """Streams whose watermark may stand elsewhere when a record comes: see :func:`_pushed`."""
    several: frozenset[str] = frozenset()
    """Streams with several partitions."""
    forgetful: frozenset[str] = frozenset()
    """Streams with a copy that comes after its id was forgotten, or nearly so."""
    ended: bool = True
    """The input ends, so that all windows emit what they have."""
    deaf: bool = False
    """The watermark service dies with the workers. guarantees.md, Event time: "If the service has died too, a record
    behind a watermark that no commit has seen may count as on time"."""


_LONG_US = 100 * 86_400_000_000  # a record from the future can move a watermark by 70 days
_NOTHING = Facts(Level.NOTHING, Order.NONE, paced=False, timely=False, single=False)


@dataclass(frozen=True, slots=True)
class Promised:
    """What is determined: of each stream, and of each computation (its state, counters and dead letters)."""

    streams: Mapping[str, Facts]
    computations: Mapping[str, Level]
    crashing: bool = False
    doubled: frozenset[str] = frozenset()
    """Computations whose productions, and so their dead letters, may come twice after a crash."""


def promised(spec: PipelineSpec, stated: bool, free: Free) -> Promised:
    """What is determined of a pipeline when runs differ in that."""
    found = {stream.name: _pushed(stream, stated, free) for stream in spec.streams if stream.source is not None}
    found[DEAD_LETTERS] = _NOTHING
    levels: dict[str, Level] = {}
    doubled: set[str] = set()
    waiting = list(spec.computations)
    while waiting:
        ready = [c for c in waiting if not any(i.stream in _outputs(o) for o in waiting for i in c.inputs)]
        for computation in ready or waiting:
            # In a circle nothing is ready: no watermark is promised there (pipeline.md, Cycles).
            made = _of(computation, found, spec, stated, free) if ready else _Made(_NOTHING)
            levels[computation.name] = made.facts.level
            doubled.update({computation.name} if made.facts.doubled else ())
            for name in _outputs(computation):
                facts = made.sides.get(name, made.facts)
                found[name] = _merged(found[name], facts) if name in found else facts
        waiting = [c for c in waiting if c not in ready] if ready else []
    retracting = retracting_streams(spec)
    facts = {name: replace(each, retracts=name in retracting) for name, each in found.items()}
    return Promised(facts, levels, free.crashing, frozenset(doubled))


def _pushed(stream: StreamSpec, stated: bool, free: Free) -> Facts:
    """guarantees.md, Event time: "How far silence lets the watermark pass differs from run to run: with the wall clock,
    after a crash, and with which partitions share a shard. So does whether the first records of a new partition …
    find the watermark ahead of them"."""
    if stream.name in free.forgetful:
        # guarantees.md, Copies: "After a crash they are remembered until its watermark has returned there".
        return _NOTHING
    differing = free.crashing or free.racing is not None
    silence = differing and not stated and stream.idle_after_us is not None
    uneven = stream.name in free.uneven
    order = Order.KEY if stream.name in (free.racing or ()) else Order.WHOLE
    paced = stated and free.racing is None and not uneven
    # A source that states its watermarks says nothing about those between its reads.
    alone = not stated and not silence and not uneven and stream.name not in free.several | (free.racing or frozenset())
    placed = Placed.BY_POSITION if alone else Placed.BY_ARRIVAL
    return Facts(order=order, paced=paced, timely=not silence and not uneven, placed=placed)


@dataclass(frozen=True, slots=True)
class _Made:
    """What a computation makes of its outputs, and of its side output."""

    facts: Facts
    sides: Mapping[str, Facts] = field(default_factory=dict)


def _outputs(computation: ComputationSpec) -> list[str]:
    side = computation.late.partition(":")[2]
    return [*computation.outputs, *([side] if side else [])]


def _merged(one: Facts, other: Facts) -> Facts:
    """Several producers of one stream: there is no order between them."""
    return replace(
        one,
        level=min(one.level, other.level),
        order=Order.NONE,
        paced=one.paced and other.paced,
        timely=one.timely and other.timely,
        single=False,
        placed=Placed.BY_ARRIVAL,
        timed=one.timed and other.timed,
        retracts=one.retracts or other.retracts,
        doubled=one.doubled or other.doubled,
    )


def _in_order(computation: ComputationSpec, found: Mapping[str, Facts], free: Free) -> bool:
    """Whether the records of each key come in one order (guarantees.md, Order: "the productions for one key
    reach each consumer's key in the order in which they were produced. There is no order between records of different
    partitions, of different streams, or of different keys")."""
    inputs = [(found[given.stream], given.key) for given in computation.inputs]
    if len(inputs) == 1:
        return _kept(*inputs[0])
    return free.racing is None and all(facts.order is Order.WHOLE for facts, _ in inputs)


def _kept(facts: Facts, key: KeySpec) -> bool:
    """Whether the records of a consumer's key come from one key of their producer."""
    same = key.kind is KeyKind.RECORD or (facts.keyed is not None and key == facts.keyed)
    return facts.order is Order.WHOLE or (facts.order is Order.KEY and same)


def _of(c: ComputationSpec, found: Mapping[str, Facts], spec: PipelineSpec, stated: bool, free: Free) -> _Made:
    base = _dialled(_inputs(c, found, spec, free), c, spec, free)
    # How far silence has moved the watermark in the end says which records still wait for their order.
    waiting = c.ordered and not base.timely and not free.ended
    if base.level is Level.NOTHING or waiting:
        return _Made(_NOTHING)
    if c.window is not None:
        return _windowed(base, c, spec, stated, free)
    if c.slices is not None:
        lasting = c.slices.keep_us >= _LONG_US  # no record is so far behind any watermark: nothing expires
        return _Made(_sliced(base, stated, lasting, free))
    if c.callback:
        return _Made(_called(base, c, spec, free))
    if c.enrich is not None:
        each = all(_kept(found[given.stream], given.key) for given in c.inputs)
        return _Made(_NOTHING if _races_its_version(c, spec, stated) else _enriched(base, c, each))
    if c.deduplicate is not None:
        return _Made(_deduplicated(base, c))
    if c.dictionary is not None:
        # pipeline.md, dictionary: with a ttl "a matter of the times of its records and of their order"; a record behind
        # the watermark counts as of the watermark. That is as with copies.
        made = _stepped(base, c) if c.dictionary.ttl_us is None else _deduplicated(base, c)
        return _Made(replace(made, placed=Placed.BY_ARRIVAL))
    if c.lookup is not None:
        # lookups.md: "Order, delivery and watermarks are those of any computation", and these answers never change.
        return _Made(replace(_stepped(base, c), single=False))
    return _Made(_stepped(base, c))


def _inputs(c: ComputationSpec, found: Mapping[str, Facts], spec: PipelineSpec, free: Free) -> Facts:
    """What is determined of what comes in."""
    inputs = [found[given.stream] for given in c.inputs]
    keys = {given.key for given in c.inputs}
    key = c.inputs[0].key if len(keys) == 1 else None
    # A record that comes by two ways, as itself and as what was made of it, may be one bundle or two.
    two_ways = len(inputs) > 1 and any(spec.stream(given.stream).source is None for given in c.inputs)
    return Facts(
        level=min(facts.level for facts in inputs),
        order=Order.KEY if _in_order(c, found, free) else Order.NONE,
        keyed=inputs[0].keyed if key is not None and key.kind is KeyKind.RECORD else key,
        paced=all(facts.paced for facts in inputs),
        timely=all(facts.timely for facts in inputs),
        single=all(facts.single for facts in inputs) and not two_ways,
        placed=inputs[0].placed if len(inputs) == 1 else Placed.BY_ARRIVAL,
        timed=all(facts.timed for facts in inputs),
        retracts=any(facts.retracts for facts in inputs),
        doubled=any(facts.doubled for facts in inputs),
    )


def _dialled(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Facts:
    """guarantees.md, The dial: at-least-once computations do not notice repeated weak productions; those with weak
    productions send theirs without ids, so that "after a crash consumers may see some of them twice"."""
    if not free.crashing:
        return replace(base, doubled=False)
    loose = c.delivery is Delivery.AT_LEAST_ONCE
    weak_before = any(
        other.productions is Productions.WEAK
        for other in spec.computations
        for given in c.inputs
        if given.stream in _outputs(other)
    )
    if base.doubled or (loose and weak_before):
        return replace(base, level=Level.NOTHING)
    return replace(base, doubled=loose and c.productions is Productions.WEAK)


def _called(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Facts:
    """A callback sees the order of its records and which timers fire between them. guarantees.md, What is not promised:
    "Callbacks that are not functions of their input"; Order. With ``order_by`` records and timers come in the order of
    their times (pipeline.md, order_by); those of one time in the order of their partition or producer."""
    kind = load_object(c.callback, spec.folder).__name__
    base = replace(base, keyed=None)  # What a callback produces has fields of its own.
    if kind.startswith("Free"):
        waits = bool(c.options.get("wait"))
        level = base.level if base.level is Level.ALL and (base.paced or not waits) else Level.NOTHING
        order = base.order if base.paced else Order.NONE
        return replace(
            base,
            level=level,
            order=order,
            paced=base.paced and not waits,
            single=False,
            retracts=False,
            placed=Placed.BY_ARRIVAL,
        )
    placed = _placed(base, c, kind, free)
    ordered = base.order is not Order.NONE and (base.paced or placed or (c.ordered and base.timely))
    # A record that waits for the watermark may set a timer of the wall clock while both move.
    ordered = ordered and not (c.ordered and c.options.get("clock", True) and not kind.startswith("Free"))
    # A timer of the past is due at once, which is after the records of the same bundle.
    ordered = ordered and (
        placed or not (c.options.get("past") and (free.bundling or not base.single or not base.paced))
    )
    if base.level is not Level.ALL or not ordered:
        return _NOTHING
    # Event time: "Whether a record is late that another computation produced behind its own watermark depends on which
    # of them arrives first". So it is with what a timer of the past produces at its time.
    timely = base.timely and not c.options.get("past")
    behind = Placed.BY_SENDER if placed and c.productions is Productions.STRONG else Placed.BY_ARRIVAL
    return replace(base, paced=False, single=False, timely=timely, placed=behind)


def _placed(base: Facts, c: ComputationSpec, kind: str, free: Free) -> bool:
    """Whether the event-time timers of a callback have their places among its records. guarantees.md, Order: not with
    ``process_batch``; with weak productions only behind a source. The wall clock has no part in it, and the watermark
    that a record finds behind another computation is that of the moment."""
    if base.placed is Placed.BY_ARRIVAL or kind.endswith("Together") or c.ordered:
        return False
    if base.placed is Placed.BY_SENDER and not (c.options.get("past") and c.productions is Productions.STRONG):
        return False
    return not (c.options.get("clock", True) and free.racing is not None)


def _sliced(base: Facts, stated: bool, lasting: bool, free: Free) -> Facts:
    """queries.md, Slices: a record of an expired slice is late, which the watermark decides that has come by then."""
    known = lasting or (base.paced and base.timely and stated and not free.deaf)
    return base if base.level is Level.ALL and known else _NOTHING


def _stepped(base: Facts, c: ComputationSpec) -> Facts:
    if base.level is Level.STANDING and not base.retracts:
        return _NOTHING
    # pipeline.md, order_by: what comes behind the watermark is passed on at once.
    order = Order.NONE if c.ordered and not base.timely else base.order
    placed = Placed.BY_ARRIVAL if c.ordered or c.productions is Productions.WEAK else min(base.placed, Placed.BY_SENDER)
    return replace(base, order=order, paced=base.paced and not c.ordered, placed=placed)


def _deduplicated(base: Facts, c: ComputationSpec) -> Facts:
    """pipeline.md, deduplicate: "The first to arrive wins"; "a record behind the watermark counts as of the
    watermark"."""
    if base.level is not Level.ALL or base.order is Order.NONE or not base.timely:
        return _NOTHING
    return _stepped(base, c)


def _races_its_version(c: ComputationSpec, spec: PipelineSpec, stated: bool) -> bool:
    """Whether a record behind a watermark that silence has moved may meet what was made of it. joins.md: such a record
    finds what has arrived by then."""
    silent = not stated and any(each.source is not None and each.idle_after_us is not None for each in spec.streams)
    return silent and any(spec.stream(given.stream).source is None for given in c.inputs)


def _enriched(base: Facts, c: ComputationSpec, each_in_order: bool) -> Facts:
    """joins.md: "results do not depend on what arrived first"; "Of two versions of one key and time, the last by
    channel and number there counts"; but ``as_of: arrival`` "depends on what arrived first"."""
    assert c.enrich is not None
    if base.level is not Level.ALL or not each_in_order or not base.timely:
        return _NOTHING
    if not c.enrich.waits and (not base.paced or base.order is Order.NONE):
        return _NOTHING
    paced = base.paced and not c.enrich.waits
    return replace(base, paced=paced, single=False, keyed=base.keyed, placed=Placed.BY_ARRIVAL)


# --- windows -----------------------------------------------------------------------------------------------------

_ARRIVAL = frozenset({"collect", "first", "last"})
"""Aggregates that see the order of arrival (pipeline.md, Aggregates); ``first`` and ``last`` among equal times."""


def _windowed(base: Facts, c: ComputationSpec, spec: PipelineSpec, stated: bool, free: Free) -> _Made:
    wants_late = c.allowed_lateness_us > 0 or c.late != "drop"
    unpaced = free.racing is not None or free.deaf or (not stated and not _upstream(c, spec))
    racing = wants_late and unpaced
    if racing or not (base.paced or base.timely) or not base.timed:
        # pipeline.md, Late records: "late for a window when the computation's watermark has passed the window's end"
        return _Made(_NOTHING)
    level = min(base.level, _fired(base, c, spec, free)) if _order_suffices(base, c) else Level.NOTHING
    retracting = c.accumulation == "retracting"
    if base.level is Level.STANDING and not (base.retracts and retracting):
        level = Level.NOTHING
    # What is emitted when windows are collected stands between the panes of others as the steps of the watermark have
    # it. A crash may come when one of several streams has ended, and the others have not.
    collected = bool(c.allowed_lateness_us) and c.trigger is not None and (free.crashing or not base.paced)
    free_order = c.join is not None or collected or (_at_one_moment(c) and (free.bundling or free.crashing))
    order = Order.NONE if free_order else Order.KEY
    base = replace(base, keyed=None if c.callback else base.keyed)
    # What a window has taken late and emits when it is collected is behind the watermark, which moves just then.
    plain = c.output_time == "end_of_window"
    timely = (
        base.timely and (plain or c.trigger is None) and (not c.allowed_lateness_us or (plain and c.trigger is None))
    )
    # windows.md, Timestamps: "that of the records that are new in the pane", which depends on how panes were cut.
    timed = plain or level is not Level.STANDING
    facts = Facts(level, order, base.keyed, False, timely, False, timed, retracting, doubled=base.doubled)
    side = c.late.partition(":")[2]
    if not side:
        return _Made(facts)
    # Which records are late is free only where windows close by their triggers.
    known = base.level is Level.ALL and (level is Level.ALL or not _closes(c.trigger))
    # windows.md, Late records: they go aside at the watermark, which may move while they come.
    aside = replace(base, single=False, timed=base.timed and base.paced, placed=Placed.BY_ARRIVAL)
    return _Made(facts, {side: aside if known else _NOTHING})


def _upstream(c: ComputationSpec, spec: PipelineSpec) -> bool:
    """Whether all of its input comes from computations."""
    return all(spec.stream(given.stream).source is None for given in c.inputs)


def _at_one_moment(c: ComputationSpec) -> bool:
    """Whether its windows may wait for one time of the clock and fire in the order in which they were made. windows.md,
    Triggers, 1: "Among windows that waited for the same time, the order is undefined"."""
    assert c.window is not None
    return c.window.kind in ("session", "custom") and "after_processing_time" in _words(c.trigger or "default")


def _order_suffices(base: Facts, c: ComputationSpec) -> bool:
    assert c.window is not None
    sees = c.window.kind == "count" or any(each.function in _ARRIVAL for each in c.aggregates)
    sees = sees or (not c.aggregates and c.join is None and not c.callback)
    sees = sees or (bool(c.callback) and not c.options.get("sort"))
    # windows.md, Cumulative windows: their records come by steps, and so do those of emit: changes.
    stepwise = c.window.kind == "cumulative" or bool(c.window.options.get("changes"))
    return not sees or (base.order is not Order.NONE and not stepwise)


def _fired(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Level:
    """windows.md, Triggers, 1: "After each bundle of records of a key … the trigger of each window concerned is
    evaluated once". So triggers that count records, or fire for late ones, depend on bundles; testing.md, Crashes:
    "a crash may cut bundles differently"."""
    assert c.window is not None
    words = frozenset(_words(c.trigger)) if c.trigger is not None else frozenset({"default"})
    loose = bool(words & {"after_count", "after_bytes", "after_percentile_watermark", "custom"})
    # A timer of a callback may be due at the same time of the clock; whether what it produces comes before the window
    # fires depends on how far it is from shard to shard.
    called = {stream for each in spec.computations if each.callback for stream in each.outputs}
    timed = free.racing is not None or any(given.stream in called for given in c.inputs)
    loose = loose or (timed and "after_processing_time" in words)
    changes = bool(c.window.options.get("changes"))
    loose = loose or ("default" in words and c.allowed_lateness_us > 0) or c.late == "refire"
    loose = loose or (changes and c.allowed_lateness_us > 0)
    # Behind its end a window that waits for it fires for the first bundle and closes: the next record is late.
    loose = loose or ("after_watermark" in words and _closes(c.trigger) and c.allowed_lateness_us > 0)
    if not loose:
        return Level.ALL
    percentile = "after_percentile_watermark" in words
    if not free.bundling and free.racing is None and base.single and base.paced and not percentile:
        return Level.ALL
    if not free.ended or _closes(c.trigger) or changes or c.callback or c.accumulation == "discarding":
        return Level.NOTHING
    if c.accumulation == "accumulating" and c.window.kind in ("session", "custom"):
        return Level.NOTHING
    # Weak productions: "A bundle that was lost in a crash runs again, and may produce something else, although a
    # consumer has perhaps applied the first version already": a pane that nobody knows to take back.
    if free.crashing and c.productions is Productions.WEAK:
        return Level.NOTHING
    return Level.STANDING


def _words(tree: Any) -> Iterable[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield str(name)
            yield from _words(inner)
    elif isinstance(tree, list | tuple):
        for inner in tree:
            yield from _words(inner)


def _closes(tree: Any) -> bool:
    """Whether a trigger may finish before the window is collected, so that what comes afterwards is late (windows.md,
    Triggers, 3): when that is, depends on how its records were bundled if it counts."""
    if tree is None:
        return False
    if isinstance(tree, str):
        return tree not in ("default", "never", "after_watermark")
    return not tree.keys() <= {"default", "never", "repeat", "after_watermark"}
