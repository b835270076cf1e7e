"""What the documents leave free of windows: the part of :mod:`.freedoms` that is about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.model.times import duration_us
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, Productions
from millwheel.core.pipeline.work import JoinSpec
from tests.search.facts import NOTHING, Facts, Free, Level, Made, Order, Placed

_ARRIVAL = frozenset({"collect", "first", "last"})
"""Aggregates that see the order of arrival (pipeline.md, Aggregates); ``first`` and ``last`` among
equal times."""


_TIMED = _ARRIVAL | {"first_row", "last_row", "max_by", "min_by", "top_rows"}
"""Aggregates that look at times, some among equal values only."""


_LONG_US = duration_us("1d")
"""No record is drawn further behind others, but for those of the far future."""


_COUNTING = frozenset({"after_count", "after_bytes", "custom"})
"""Triggers that look at how many records have come."""


def windowed(base: Facts, c: ComputationSpec, spec: PipelineSpec, stated: bool, free: Free) -> Made:
    wants_late = c.firing.allowed_lateness_us > 0 or c.late != "drop"
    unpaced = free.racing is not None or free.deaf or (not stated and not _upstream(c, spec))
    racing = wants_late and unpaced
    if c.is_change_log:
        return _change_log(base, c, spec, free)
    if racing or not (base.paced or base.timely) or not base.timed:
        # pipeline.md, Late records: "late for a window when the computation's watermark has passed
        # the window's end"
        return Made(NOTHING)
    level = (
        min(base.level, _fired(base, c, spec, free)) if _order_suffices(base, c) else Level.NOTHING
    )
    retracting = c.firing.accumulation == "retracting"
    if isinstance(c.work, JoinSpec):
        retracting = _takes_back(base, c.work)
    if base.level is Level.STANDING and not (base.retracts and retracting):
        level = Level.NOTHING
    # windows.md, Triggers, 4: "the order of the last panes of different windows of a key depends on
    # the steps of the watermark". A bundle fires some of the timers that are due at one step (in
    # the base one), and the next bundle may have the watermark of the next step.
    collected = bool(c.firing.allowed_lateness_us) and c.firing.trigger is not None
    free_order = isinstance(c.work, JoinSpec) or collected or _at_one_moment(c)
    order = Order.NONE if free_order else Order.KEY
    base = replace(base, keyed=None if c.called else base.keyed)
    # What a window has taken late and emits when it is collected is behind the watermark, which
    # moves just then.
    plain = c.firing.output_time == "end_of_window"
    timely = (
        base.timely
        and (plain or c.firing.trigger is None)
        and (not c.firing.allowed_lateness_us or (plain and c.firing.trigger is None))
    )
    # windows.md, Timestamps: "that of the records that are new in the pane", which depends on how
    # panes were cut.
    timed = plain or level is not Level.STANDING
    facts = Facts(
        level, order, base.keyed, False, timely, False, timed, retracting, doubled=base.doubled
    )
    if not c.late_side:
        return Made(facts)
    # Which records are late is free only where windows close by their triggers.
    known = base.level is Level.ALL and (level is Level.ALL or not _closes(c))
    # windows.md, Late records: they go aside at the watermark, which may move while they come.
    aside = replace(base, single=False, timed=base.timed and base.paced, placed=Placed.BY_ARRIVAL)
    return Made(facts, {c.late_side: aside if known else NOTHING})


def _change_log(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Made:
    """pipeline.md, Change logs: "The rows folded by key are a function of the input, and so are
    their timestamps, unless the input takes records back. How many versions come before, and which,
    is chance." No record is late, so the watermark has no part in it; a version may be behind
    it."""
    retracting = c.firing.accumulation == "retracting"
    level = min(base.level, Level.STANDING, _fired(base, c, spec, free))
    if not free.ended and "every" in str(c.firing.trigger):
        level = Level.NOTHING
    assert c.windowed is not None
    has_lives = "ttl_us" in c.windowed.window.options
    goes_by_time = has_lives or any(each.function in _TIMED for each in c.aggregates)
    if (goes_by_time and not base.timed) or not _order_suffices(base, c):
        level = Level.NOTHING
    # pipeline.md, Change logs: "A record more than `ttl` behind the watermark may find its group
    # forgotten", and what may be drawn is that late only behind records of the far future.
    if has_lives and any(each.source and each.max_future_us is None for each in spec.streams):
        level = Level.NOTHING
    # Where that is short, they have to be within a long `max_delay`.
    short = has_lives and c.windowed.window.options["ttl_us"] < _LONG_US
    if short and any(each.source and each.max_delay_us < _LONG_US for each in spec.streams):
        level = Level.NOTHING
    if base.level is Level.STANDING and not (base.retracts and retracting):
        level = Level.NOTHING
    order = Order.NONE if free.crashing else Order.KEY
    facts = Facts(
        level,
        order,
        base.keyed,
        False,
        False,
        False,
        base.timed and not base.retracts,
        retracting,
        doubled=base.doubled,
    )
    return Made(facts)


def _upstream(c: ComputationSpec, spec: PipelineSpec) -> bool:
    """Whether all of its input comes from computations."""
    return all(spec.stream(given.stream).source is None for given in c.inputs)


def _at_one_moment(c: ComputationSpec) -> bool:
    """Whether its windows may wait for one time of the clock. They fire in the order of their
    numbers as text, which is that in which they were made only up to the tenth. windows.md,
    Triggers, 1: "among equal times … the order is undefined"."""
    assert c.windowed is not None
    return c.windowed.window.kind in ("session", "custom") and "after_processing_time" in _words(
        c.firing.trigger or "default"
    )


def _order_suffices(base: Facts, c: ComputationSpec) -> bool:
    assert c.windowed is not None
    sees = c.windowed.window.kind == "count" or any(
        each.function in _ARRIVAL for each in c.aggregates
    )
    sees = sees or (not c.aggregates and not isinstance(c.work, JoinSpec) and not c.called)
    sees = sees or (c.called is not None and not c.called.options.get("sort"))
    # windows.md, Cumulative windows: their records come by steps, and so do those of emit: changes.
    stepwise = c.windowed.window.kind == "cumulative" or bool(
        c.windowed.window.options.get("changes")
    )
    return not sees or (base.order is not Order.NONE and not stepwise)


def _fired(base: Facts, c: ComputationSpec, spec: PipelineSpec, free: Free) -> Level:
    """windows.md, Triggers, 1: "After each bundle of records of a key … the trigger of each window
    concerned is evaluated once". So triggers that count records, or fire for late ones, depend on
    bundles; testing.md, Crashes: "a crash may cut bundles differently"."""
    assert c.windowed is not None
    words = (
        frozenset(_words(c.firing.trigger))
        if c.firing.trigger is not None
        else frozenset({"default"})
    )
    loose = bool(words & (_COUNTING | {"after_percentile_watermark"}))
    # A timer of a callback may be due at the same time of the clock; whether what it produces comes
    # before the window fires depends on how far it is from shard to shard.
    called = {stream for each in spec.computations if each.called for stream in each.outputs}
    timed = free.racing is not None or any(given.stream in called for given in c.inputs)
    loose = loose or (timed and bool(words & {"after_processing_time", "every"}))
    changes = bool(c.windowed.window.options.get("changes"))
    loose = loose or ("default" in words and c.firing.allowed_lateness_us > 0) or c.late == "refire"
    loose = loose or (changes and c.firing.allowed_lateness_us > 0)
    # Records of its two inputs come together, or apart.
    loose = loose or (isinstance(c.work, JoinSpec) and c.firing.trigger is not None)
    # A window that is made behind its end fires for the first bundle, and for the next record only
    # as ``late`` says; or it has closed, and that record is late.
    loose = loose or ("after_watermark" in words and c.firing.allowed_lateness_us > 0)
    if not loose:
        return Level.ALL
    percentile = "after_percentile_watermark" in words
    if not free.bundling and free.racing is None and base.single and base.paced and not percentile:
        return Level.ALL
    if not free.ended or _closes(c) or changes or c.called or c.firing.accumulation == "discarding":
        return Level.NOTHING
    if isinstance(c.work, JoinSpec) and _leaves_some(c.firing.trigger):
        # What has come since the last time is in no pane. How much that is depends on bundles.
        return Level.NOTHING
    if isinstance(c.work, JoinSpec) and not _takes_back(base, c.work):
        # joins.md, Late and early: "each pair once", however its window fires.
        return Level.ALL
    if c.firing.accumulation == "accumulating" and c.windowed.window.kind in ("session", "custom"):
        return Level.NOTHING
    # Weak productions: "A bundle that was lost in a crash runs again, and may produce something
    # else, although a consumer has perhaps applied the first version already": a pane that nobody
    # knows to take back.
    if free.crashing and c.productions is Productions.WEAK:
        return Level.NOTHING
    return Level.STANDING


def _takes_back(base: Facts, work: JoinSpec) -> bool:
    """Whether its results change, of themselves or with its inputs."""
    return work.takes_back or (work.changes and base.retracts)


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


def _leaves_some(trigger: Any) -> bool:
    """Whether a window may end before its trigger has fired for all that it has."""
    words = set(_words(trigger))
    counts = re.findall(r"'after_count': (\d+)", str(trigger))
    counting = bool(words & (_COUNTING - {"after_count"})) or any(each != "1" for each in counts)
    return counting and "after_watermark" not in words


def _closes(c: ComputationSpec) -> bool:
    """Whether a trigger may finish before the window is collected, so that what comes afterwards is
    late (windows.md, Triggers, 3): when that is, depends on how its records were bundled if it
    counts, or if the window is made behind its end."""
    tree, behind = c.firing.trigger, c.firing.allowed_lateness_us > 0
    if tree is None:
        return False
    if isinstance(tree, str):
        return tree not in ("default", "never") and (behind or tree != "after_watermark")
    if "after_watermark" in tree:
        return behind and "late" not in (tree["after_watermark"] or {})
    return not tree.keys() <= {"default", "never", "repeat", "every"}
