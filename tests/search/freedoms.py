"""What the documents leave free: the one place that says which results of a pipeline must be equal
in which runs.

Everything else in the search takes it from here. Each rule points at the sentence that it stands
for.

A script lets everything come to rest before its next action (see ``script.py``), so what a source
pushes is processed in the order of the script, and the watermark and the clock stand still
meanwhile. What is left to chance is what happens within one action: how records are bundled, and
which of several ways to a computation is the quicker one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    PipelineSpec,
    Productions,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinKind,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepKind,
    StepsSpec,
    TopSpec,
)
from tests.search.facts import NOTHING, Facts, Free, Level, Made, Order, Placed
from tests.search.window_freedoms import windowed

_LONG_US = 100 * 86_400_000_000  # a record from the future can move a watermark by 70 days


@dataclass(frozen=True, slots=True)
class Promised:
    """What is determined: of each stream, and of each computation (its state, counters and dead
    letters)."""

    streams: Mapping[str, Facts]
    computations: Mapping[str, Level]
    crashing: bool = False
    doubled: frozenset[str] = frozenset()
    """Computations whose productions, and so their dead letters, may come twice after a crash."""


def promised(spec: PipelineSpec, stated: bool, free: Free) -> Promised:
    """What is determined of a pipeline when runs differ in that."""
    found = {
        stream.name: _pushed(stream, stated, free)
        for stream in spec.streams
        if stream.source is not None
    }
    found[DEAD_LETTERS] = NOTHING
    levels: dict[str, Level] = {}
    doubled: set[str] = set()
    waiting = list(spec.computations)
    while waiting:
        ready = [
            c
            for c in waiting
            if not any(i.stream in _outputs(o) for o in waiting for i in c.inputs)
        ]
        for computation in ready or waiting:
            # In a circle nothing is ready: no watermark is promised there (pipeline.md, Cycles).
            made = _of(computation, found, spec, stated, free) if ready else Made(NOTHING)
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
    """guarantees.md, Event time: "How far silence lets the watermark pass differs from run to run:
    with the wall clock, after a crash, and with which partitions share a shard. So does whether the
    first records of a new partition … find the watermark ahead of them"."""
    if stream.name in free.forgetful:
        # guarantees.md, Copies: "After a crash they are remembered until its watermark has returned
        # there".
        return NOTHING
    differing = free.crashing or free.racing is not None
    silence = differing and not stated and stream.idle_after_us is not None
    uneven = stream.name in free.uneven
    order = Order.KEY if stream.name in (free.racing or ()) else Order.WHOLE
    paced = stated and free.racing is None and not uneven
    # A source that states its watermarks says nothing about those between its reads.
    alone = (
        not stated
        and not silence
        and not uneven
        and stream.name not in free.several | (free.racing or frozenset())
    )
    placed = Placed.BY_POSITION if alone else Placed.BY_ARRIVAL
    timely = not silence and not uneven
    behind = stream.name in free.overtaken
    return Facts(order=order, paced=paced, timely=timely, placed=placed, behind=behind)


def _outputs(computation: ComputationSpec) -> list[str]:
    return [*computation.outputs, *filter(None, [computation.late_side])]


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
        behind=one.behind or other.behind,
    )


def _in_order(computation: ComputationSpec, found: Mapping[str, Facts], free: Free) -> bool:
    """Whether the records of each key come in one order (guarantees.md, Order: "the productions for
    one key reach each consumer's key in the order in which they were produced. There is no order
    between records of different partitions, of different streams, or of different keys")."""
    inputs = [(found[given.stream], given.key) for given in computation.inputs]
    if len(inputs) == 1:
        return _kept(*inputs[0])
    return free.racing is None and all(facts.order is Order.WHOLE for facts, _ in inputs)


def _kept(facts: Facts, key: KeySpec) -> bool:
    """Whether the records of a consumer's key come from one key of their producer."""
    # an expression reads other records at each computation
    named = facts.keyed is not None and key.kind is not KeyKind.EXPRESSIONS
    same = key.kind is KeyKind.RECORD or (named and key == facts.keyed)
    return facts.order is Order.WHOLE or (facts.order is Order.KEY and same)


def _of(
    c: ComputationSpec, found: Mapping[str, Facts], spec: PipelineSpec, stated: bool, free: Free
) -> Made:
    base = _dialled(_inputs(c, found, spec, free), c, spec, free)
    # How far silence has moved the watermark in the end says which records still wait for their
    # order.
    waiting = c.ordered and not base.timely and not free.ended
    if base.level is Level.NOTHING or waiting:
        return Made(NOTHING)
    if c.windowed is not None:
        return windowed(base, c, spec, stated, free)
    if isinstance(c.work, SlicesSpec):
        # no record is so far behind any watermark: nothing expires
        lasting = c.work.keep_us >= _LONG_US
        return Made(_sliced(base, stated, lasting, free))
    if c.called:
        return Made(_called(base, c, spec, free))
    if isinstance(c.work, EnrichSpec):
        each = all(_kept(found[given.stream], given.key) for given in c.inputs)
        return Made(NOTHING if _races_itself(base, c, spec) else _enriched(base, c, each))
    if isinstance(c.work, RegularJoinSpec):
        return Made(_kept_join(base, c.work, [found[given.stream] for given in c.inputs]))
    if isinstance(c.work, IntervalJoinSpec):
        return Made(NOTHING if _races_itself(base, c, spec) else _near_join(base, c.work))
    if isinstance(c.work, OverSpec):
        return Made(NOTHING if _races_itself(base, c, spec) else _looking_back(base))
    if isinstance(c.work, DeduplicateSpec):
        return Made(_deduplicated(base, c))
    if isinstance(c.work, TopSpec):
        return Made(_first_rows(base, free))
    if isinstance(c.work, DictionarySpec):
        # pipeline.md, dictionary: with a ttl "a matter of the times of its records and of their
        # order"; a record behind the watermark counts as of the watermark. That is as with copies.
        made = _stepped(base, c) if c.work.ttl_us is None else _deduplicated(base, c)
        return Made(replace(made, placed=Placed.BY_ARRIVAL))
    if isinstance(c.work, LookupSpec):
        # lookups.md: "Order, delivery and watermarks are those of any computation", and these
        # answers never change.
        return Made(replace(_stepped(base, c), single=False))
    if isinstance(c.work, StepsSpec) and any(
        step.kind is StepKind.FLAT_MAP for step in c.work.steps
    ):
        # The results of one record are one bundle (seed 450398: a trigger counted their bytes).
        return Made(replace(_stepped(base, c), single=False))
    return Made(_stepped(base, c))


def _inputs(
    c: ComputationSpec, found: Mapping[str, Facts], spec: PipelineSpec, free: Free
) -> Facts:
    """What is determined of what comes in."""
    inputs = [found[given.stream] for given in c.inputs]
    keys = {given.key for given in c.inputs}
    key = c.inputs[0].key if len(keys) == 1 else None
    # A record that comes by two ways, as itself and as what was made of it, may be one bundle or
    # two.
    two_ways = len(inputs) > 1 and any(
        spec.stream(given.stream).source is None for given in c.inputs
    )
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
        behind=any(facts.behind for facts in inputs),
    )


def _dialled(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Facts:
    """guarantees.md, The dial: at-least-once computations do not notice repeated weak productions;
    those with weak productions send theirs without ids, so that "after a crash consumers may see
    some of them twice". Copies, with the id of a weak production that was forgotten: so do those of
    others."""
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
    forgotten = not free.forgetful.isdisjoint(c.outputs)
    doubled = forgotten or (loose and c.productions is Productions.WEAK)
    return replace(base, doubled=doubled)


def _called(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Facts:
    """A callback sees the order of its records and which timers fire between them. guarantees.md,
    What is not promised: "Callbacks that are not functions of their input"; Order. With
    ``order_by`` records and timers come in the order of their times (pipeline.md, order_by); those
    of one time in the order of their partition or producer."""
    kind = load_object(c.called.callback, spec.folder).__name__
    base = replace(base, keyed=None)  # What a callback produces has fields of its own.
    if kind.startswith("Free"):
        waits = bool(c.called.options.get("wait"))
        level = (
            base.level if base.level is Level.ALL and (base.paced or not waits) else Level.NOTHING
        )
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
    ordered = ordered and not (
        c.ordered and c.called.options.get("clock", True) and not kind.startswith("Free")
    )
    # A timer of the past is due at once, which is after the records of the same bundle.
    ordered = ordered and (
        placed
        or not (
            c.called.options.get("past") and (free.bundling or not base.single or not base.paced)
        )
    )
    if base.level is not Level.ALL or not ordered:
        return NOTHING
    # Event time: "Whether a record is late that another computation produced behind its own
    # watermark depends on which of them arrives first". So it is with what a timer of the past
    # produces at its time.
    timely = base.timely and not c.called.options.get("past")
    behind = (
        Placed.BY_SENDER if placed and c.productions is Productions.STRONG else Placed.BY_ARRIVAL
    )
    return replace(base, paced=False, single=False, timely=timely, placed=behind)


def _placed(base: Facts, c: ComputationSpec, kind: str, free: Free) -> bool:
    """Whether the event-time timers of a callback have their places among its records.
    guarantees.md, Order: not with ``process_batch``; with weak productions only behind a source.
    The wall clock has no part in it, and the watermark that a record finds behind another
    computation is that of the moment."""
    if base.placed is Placed.BY_ARRIVAL or kind.endswith("Together") or c.ordered:
        return False
    if base.placed is Placed.BY_SENDER and not (
        c.called.options.get("past") and c.productions is Productions.STRONG
    ):
        return False
    return not (c.called.options.get("clock", True) and free.racing is not None)


def _sliced(base: Facts, stated: bool, lasting: bool, free: Free) -> Facts:
    """queries.md, Slices: a record of an expired slice is late, which the watermark decides that
    has come by then. They are asked before the end: how far silence has moved the watermark says
    which records still wait before them."""
    known = (lasting and (base.paced or base.timely)) or (
        base.paced and base.timely and stated and not free.deaf
    )
    return base if base.level is Level.ALL and known else NOTHING


def _stepped(base: Facts, c: ComputationSpec) -> Facts:
    if base.level is Level.STANDING and not base.retracts:
        return NOTHING
    # pipeline.md, order_by: what comes behind the watermark is passed on at once.
    order = Order.NONE if c.ordered and not base.timely else base.order
    placed = (
        Placed.BY_ARRIVAL
        if c.ordered or c.productions is Productions.WEAK
        else min(base.placed, Placed.BY_SENDER)
    )
    return replace(base, order=order, paced=base.paced and not c.ordered, placed=placed)


def _deduplicated(base: Facts, c: ComputationSpec) -> Facts:
    """pipeline.md, deduplicate: "The first to arrive wins"; "a record behind the watermark counts
    as of the watermark"."""
    if base.level is not Level.ALL or base.order is Order.NONE or not base.timely:
        return NOTHING
    return _stepped(base, c)


def _first_rows(base: Facts, free: Free) -> Facts:
    """pipeline.md, top: "The rows folded by key are a function of the input. How many changes come
    before, and which, is chance"; "behind a change log the time has no say"."""
    known = base.retracts or (base.level is Level.ALL and base.timed)
    return Facts(
        Level.STANDING if known else Level.NOTHING,
        Order.NONE if free.crashing else Order.KEY,
        base.keyed,
        paced=False,
        timely=False,
        single=False,
        timed=False,
        retracts=True,
        doubled=base.doubled,
    )


def _kept_join(base: Facts, work: RegularJoinSpec, inputs: Sequence[Facts]) -> Facts:
    """joins.md, Without a window: "the rows that stand in the end are those of the same join over
    all records"; a pair has "the later of both times", and a row alone that of what changed it."""
    if any(each.level is Level.STANDING and not each.retracts for each in inputs):
        return NOTHING
    changes = work.takes_back or base.retracts
    pairs = work.kind is JoinKind.INNER and not base.retracts
    return replace(
        base,
        level=Level.STANDING if changes else Level.ALL,
        order=Order.NONE,
        single=False,
        placed=Placed.BY_ARRIVAL,
        timed=base.timed and pairs,
    )


def _near_join(base: Facts, work: IntervalJoinSpec) -> Facts:
    """joins.md, Within an interval: "A record behind the watermark finds the partners that are
    still there"; a record of ``semi`` has the time of the pair that came first."""
    if base.level is not Level.ALL or not (base.timely and base.timed):
        return NOTHING
    return replace(
        base,
        order=Order.NONE,
        single=False,
        placed=Placed.BY_ARRIVAL,
        timed=work.kind is not JoinKind.SEMI,
        paced=work.kind in (JoinKind.INNER, JoinKind.SEMI) and base.paced,
    )


def _looking_back(base: Facts) -> Facts:
    """pipeline.md, over: "results are a function of the input"; but a record that is emitted behind
    a watermark "comes behind those that were there", and several of them "in the order in which
    they arrive"."""
    if base.level is not Level.ALL or not (base.timely and base.timed):
        return NOTHING
    if base.behind and base.order is Order.NONE:
        return NOTHING
    return replace(base, order=Order.KEY, paced=False, single=False, placed=Placed.BY_ARRIVAL)


def _races_itself(base: Facts, c: ComputationSpec, spec: PipelineSpec) -> bool:
    """Whether a record behind a watermark that silence has moved may meet what was made of it.
    joins.md: such a record finds what has arrived by then; pipeline.md, over: it comes behind those
    that were there."""
    origins = [_origins(given.stream, spec, set()) for given in c.inputs]
    return base.behind and len(frozenset().union(*origins)) < sum(map(len, origins))


def _origins(stream: str, spec: PipelineSpec, seen: set[str]) -> frozenset[str]:
    """The sources from which the records of a stream come."""
    if spec.stream(stream).source is not None:
        return frozenset({stream})
    makers = [c for c in spec.computations if stream in _outputs(c) and c.name not in seen]
    seen.update(c.name for c in makers)
    found = (_origins(given.stream, spec, seen) for c in makers for given in c.inputs)
    return frozenset[str]().union(*found)


def _enriched(base: Facts, c: ComputationSpec, each_in_order: bool) -> Facts:
    """joins.md: "results do not depend on what arrived first"; "Of two versions of one key and
    time, the last by channel and number there counts"; but ``as_of: arrival`` "depends on what
    arrived first"."""
    assert isinstance(c.work, EnrichSpec)
    if base.level is not Level.ALL or not each_in_order or not base.timely:
        return NOTHING
    if not c.work.waits and (not base.paced or base.order is Order.NONE):
        return NOTHING
    paced = base.paced and not c.work.waits
    # joins.md: "Results of one key come in the order of time from each copy, and in no order from
    # several".
    order = base.order if c.work.broadcast is None else Order.NONE
    placed = Placed.BY_ARRIVAL
    return replace(base, paced=paced, single=False, keyed=base.keyed, placed=placed, order=order)
