"""The ways in which a case is run, and what must be equal between them."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import PipelineSpec, Productions
from millwheel.errors import PipelineError
from tests.search.against import against_reference
from tests.search.callbacks import IMPOSSIBLE
from tests.search.compare import differences
from tests.search.divided import timely, with_broadcast
from tests.search.facts import Free
from tests.search.freedoms import Promised, promised
from tests.search.running import Way, run
from tests.search.script import PARTITION, Case, Clock, Finish, Outcome, Push, Watermark, load

BASE = Way("base", together=1, bundle=1, timers=1, columns=False)
"""One record at a time, without a crash, in one shard of one worker."""

VARIANTS: dict[str, Way] = {
    "bundles": Way("bundles"),
    "together": Way("together", together=1000),
    "pairs": Way("pairs", together=2, bundle=2, timers=2),
    "shards": Way("shards", together=1, shards=3, workers=2, warmed=True),
    "spread": Way("spread", shards=2, workers=3, together=5),
    "crash": Way("crash", together=1, crash_at=0.5),
    "crash-bundles": Way(
        "crash-bundles", together=1000, crash_at=0.5, shards=2, workers=2, service_lives=True
    ),
    "crashes": Way("crashes", crash_every=40, shards=2, workers=2, service_lives=True),
    "restart": Way("restart", together=1, stop_at=(0.3, 0.6), resized=2, workers=1, shards=2),
    "restart-rows": Way(
        "restart-rows", columns=False, cached=False, stop_at=(0.5,), snapshot_bytes=300
    ),
    "rows": Way("rows", columns=False),
    "clocks": Way("clocks", racing_clock=True),
    "clocks-crashes": Way("clocks-crashes", racing_clock=True, crash_every=40),
    "careful": Way("careful", careful=True),
    "uncached": Way("uncached", together=1, cached=False),
    "divided": Way("divided", shards=3, workers=2, scatter=3),
    "divided-crashes": Way(
        "divided-crashes",
        together=3,
        shards=2,
        workers=2,
        scatter=3,
        crash_every=25,
        service_lives=True,
    ),
    "grouped": Way("grouped", together=7, bundle=3, shards=3, workers=2, scatter=3, grouped=True),
    "grouped-crashes": Way(
        "grouped-crashes",
        together=3,
        shards=2,
        workers=2,
        scatter=4,
        grouped=True,
        crash_every=25,
        service_lives=True,
    ),
    "combined": Way("combined", together=1000, shards=2, workers=2, combined=True),
    "combined-crashes": Way(
        "combined-crashes",
        together=1000,
        bundle=9,
        shards=3,
        workers=2,
        combined=True,
        crash_every=25,
        service_lives=True,
    ),
    "edited": Way(
        "edited",
        together=1000,
        bundle=9,
        shards=2,
        workers=2,
        combined=True,
        edited=True,
        crash_at=0.5,
    ),
    "edited-often": Way(
        "edited-often", shards=2, workers=2, edited=True, crash_every=25, service_lives=True
    ),
    "uncached-bundles": Way("uncached-bundles", cached=False, together=4),
    "large": Way("large", large=True, together=8),
    "large-crashes": Way(
        "large-crashes", large=True, together=8, crash_every=25, service_lives=True
    ),
    "little": Way("little", little=True, together=8, bundle=2),
    "little-crashes": Way(
        "little-crashes", little=True, together=8, bundle=2, crash_every=25, service_lives=True
    ),
    "large-little": Way("large-little", large=True, little=True, together=8),
}
"""By name. Places of crashes and numbers of records are drawn anew for each seed."""
_LARGE = 0.3  # of the seeds that draw their ways
_LITTLE = 0.3  # likewise
_FEW = (0, 0, 3, 200)
"""Below how many records a batch is grouped in rows: never, in some of its bundles, in all of
them."""
_WEAK_HORIZON_US = 3_600_000_000
"""guarantees.md, Copies: "the ids of weak productions have a horizon of an hour"."""
REFERENCE = Way("reference", together=1, bundle=1, timers=1)
"""Not run in another way: what the base gave is compared with what the reference says."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case whose outcome differs in one way from the base."""

    case: Case
    way: Way
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed {self.case.seed}, {self.way.name}: {self.differences[0]}"


def chosen(seed: int, count: int, names: Iterable[str] = ()) -> list[Way]:
    """``count`` of the ways, as the seed draws them."""
    rng = random.Random(f"ways {seed}")
    few = random.Random(f"few {seed}").choice(_FEW)
    named = {
        **{name: replace(way, few=few) for name, way in VARIANTS.items()},
        REFERENCE.name: REFERENCE,
    }
    if asked := [_varied(named[name], rng) for name in names]:
        return asked
    ways = [way for way in VARIANTS.values() if not (way.large or way.little)]
    large = random.Random(f"large {seed}").random() < _LARGE
    little = random.Random(f"little {seed}").random() < _LITTLE
    drawn = (replace(way, large=large, few=few, little=little) for way in rng.sample(ways, count))
    return [REFERENCE, *(_varied(way, rng) for way in drawn)]


def option_for(seed: int, way: Way) -> str:
    """The option of the command that runs a seed in a way as it was drawn; "" where the seed draws
    it by itself."""
    return f" --variant {way.name}" if way != BASE and way in chosen(seed, 0, [way.name]) else ""


def _varied(way: Way, rng: random.Random) -> Way:
    if way.crash_at is not None:
        way = replace(way, crash_at=round(rng.random(), 3))
    if way.crash_every is not None:
        way = replace(way, crash_every=rng.choice([15, 25, 40, 80]))
    if way.stop_at:
        way = replace(way, stop_at=tuple(round(rng.random(), 2) for _ in way.stop_at))
    return way


def free_of(way: Way, case: Case, spec: PipelineSpec) -> Free:
    """What differs between a way and the base."""
    deaf = way.crashes and not way.service_lives
    uneven = _appearing(case) if deaf else frozenset()
    ended = any(isinstance(action, Finish) and action.stream is None for action in case.script)
    # Whoever opens a shard forgets at once what the one before would have kept for up to a minute.
    reopened = way.crashes or bool(way.stop_at) or bool(way.resized)
    known = case.stated and not deaf
    forgetful = frozenset[str]()
    if reopened:
        forgetful = _forgetful(case, spec, known) | _forgotten_productions(case, spec)
    elif way.together != 1 and not case.stated:
        # A copy that comes together with what moves the watermark finds the id, if it is taken
        # though it is late.
        forgetful = _forgetful(case, spec, False) & _taken_late(spec)
    racing = frozenset[str]() if way.racing_clock else None
    several = _several(case)
    overtaken = _overtaken(case, spec)
    return Free(
        way.together != 1,
        way.crashes,
        racing,
        uneven,
        several,
        overtaken,
        forgetful,
        ended,
        deaf,
    )


def _forgetful(case: Case, spec: PipelineSpec, known: bool) -> frozenset[str]:
    """Streams with a copy that is pushed when its id may have been forgotten. Where the watermark
    is ``known``, ids are forgotten at the same moments in every run; but one that came when it
    should have been forgotten already is kept until the watermark rises, or a shard opens."""
    found: set[str] = set()
    seen: dict[tuple[str, Any], int] = {}
    behind: set[tuple[str, Any]] = set()
    gone_by, clock = 0, case.now or 0
    for action in case.script:
        if isinstance(action, Watermark):
            gone_by = max(gone_by, action.t)
        elif isinstance(action, Clock) and not case.stated:
            # Silence lets the watermark follow the clock, no further than the clock went.
            gone_by, clock = gone_by + action.t - clock, action.t
        elif isinstance(action, Push):
            stream = spec.stream(action.stream)
            for value in action.values:
                at, given = value.get("at"), value.get(stream.id or "")
                if given is None or type(at) is not int:
                    continue
                at *= stream.timestamp_unit_us
                index = stream.name, given
                late = seen.get(index, at if known else gone_by) + stream.id_horizon_us < gone_by
                if index in behind if known else late:
                    found.add(stream.name)
                if late and index not in seen:
                    behind.add(index)
                seen.setdefault(index, at)
                gone_by = gone_by if case.stated else max(gone_by, at)
    return frozenset(found)


def _taken_late(spec: PipelineSpec) -> frozenset[str]:
    """Streams with a consumer that takes records behind the watermark."""
    eligible = (each for each in spec.computations if each.takes_late)
    return frozenset(given.stream for each in eligible for given in each.inputs)


def _forgotten_productions(case: Case, spec: PipelineSpec) -> frozenset[str]:
    """Streams of weak productions, if something comes when the watermark has left what came before
    further behind than their ids are remembered: a record of the far future moves it so far."""
    lowest, stand, clock = MAX_TIME, MIN_TIME, case.now or 0
    far = False
    for action in case.script:
        if isinstance(action, Watermark):
            stand = max(stand, action.t)
        elif isinstance(action, Clock) and not case.stated:
            stand, clock = stand + action.t - clock, action.t
        elif isinstance(action, Push):
            unit_us = spec.stream(action.stream).timestamp_unit_us
            for at in (value.get("at") for value in action.values if isinstance(value, dict)):
                if type(at) is not int:
                    continue
                far = far or stand - lowest > _WEAK_HORIZON_US
                lowest = min(lowest, at * unit_us)
                stand = stand if case.stated else max(stand, at * unit_us)
    weak = (c for c in spec.computations if c.productions is Productions.WEAK)
    return frozenset(name for c in weak for name in c.outputs) if far else frozenset()


def _several(case: Case) -> frozenset[str]:
    """Streams with several partitions."""
    found = {
        (action.stream, action.partition) for action in case.script if isinstance(action, Push)
    }
    streams = [stream for stream, _ in found]
    return frozenset(stream for stream in streams if streams.count(stream) > 1)


def _appearing(case: Case) -> frozenset[str]:
    """Streams that get a new partition when their watermark has moved already."""
    found: set[str] = set()
    moved: set[str | None] = set()
    known: set[tuple[str, str]] = set()
    for action in case.script:
        if isinstance(action, Watermark):
            moved.add(action.stream)
        if not isinstance(action, Push):
            continue
        index = (action.stream, action.partition)
        first = index not in known and not (case.stated and action.partition == PARTITION)
        if first and moved & {None, action.stream}:
            found.add(action.stream)
        known.add(index)
        if not case.stated:
            moved.add(action.stream)
    return frozenset(found)


def _overtaken(case: Case, spec: PipelineSpec) -> frozenset[str]:
    """Streams that go on when they, or one of their partitions, have been silent for so long that
    the watermark may have gone on without them; and those that get a new partition."""
    found = set(_appearing(case))
    clock = begun = case.now or 0
    heard: dict[tuple[str, str], int] = {}
    for action in case.script:
        if isinstance(action, Clock):
            clock = action.t
        elif isinstance(action, Push) and not case.stated:
            idle_us = spec.stream(action.stream).idle_after_us
            index = action.stream, action.partition
            if idle_us is not None and clock - heard.get(index, begun) >= idle_us:
                found.add(action.stream)
            heard[index] = clock
    return frozenset(found)


def examine(case: Case, ways: Iterable[Way], first_only: bool = True) -> list[Finding]:
    """Run a case as the base and in each way, and say where they differ."""
    if case.refused:
        return (
            []
            if _refuses(case)
            else [Finding(case, BASE, ("the loader accepts what the pages refuse",))]
        )
    found: list[Finding] = []
    spec = case.spec()
    want = attempt(case, BASE, spec)
    if isinstance(want, str):
        return [Finding(case, BASE, (want,))]
    for way in ways:
        finding = judge(case, way, spec, want)
        if finding is not None:
            found.append(finding)
            if first_only:
                break
    return found


def _refuses(case: Case) -> bool:
    try:
        # what was accepted once is remembered, with whatever mistake was made then
        load.__wrapped__(case.yaml)
    except PipelineError:
        return True
    return False


def judge(case: Case, way: Way, spec: PipelineSpec, want: Outcome) -> Finding | None:
    """How one way differs from what the base gave."""
    if way == REFERENCE:
        # The reference has no watermarks at positions: to it, all records and timers come as they
        # arrive.
        by_arrival = frozenset(stream.name for stream in spec.streams)
        free = replace(free_of(BASE, case, spec), several=by_arrival)
        unequal = told(case, spec, promised(spec, case.stated, free), want)
        return Finding(case, way, tuple(unequal)) if unequal else None
    if way.scatter > 1 and (own := timely(case, spec)) is not case:
        case, base = own, attempt(own, BASE, spec)
        if isinstance(base, str):
            return Finding(case, BASE, (base,))
        want = base
    got = attempt(case, way, spec)
    if isinstance(got, str):
        return Finding(case, way, (got,))
    unequal = [letter.reason for letter in got.letters if IMPOSSIBLE in letter.reason]
    # A partial computation has counters of its own.
    own_spec = with_broadcast(spec, way.scatter, case)
    known = promised(own_spec, case.stated, free_of(way, case, spec))
    unequal += differences(spec, known, want, got, counted=way.scatter == 1)
    return Finding(case, way, tuple(unequal)) if unequal else None


def told(case: Case, spec: PipelineSpec, known: Promised, base: Outcome) -> list[str]:
    """How the base differs from the reference, or how that ended."""
    try:
        return against_reference(case, spec, known, base)
    except Exception as ex:  # whatever ends it is a finding
        return [f"the reference ends with {_story(ex)}"]


def attempt(case: Case, way: Way, spec: PipelineSpec) -> Outcome | str:
    """The outcome, or how the run ended."""
    try:
        return run(case, way, spec)
    except Exception as ex:  # whatever ends a run is a finding
        return f"the run ends with {_story(ex)}"


def _story(ex: Exception) -> str:
    frames = traceback.extract_tb(ex.__traceback__)
    where = " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in reversed(frames[-4:]))
    return f"{type(ex).__name__}: {ex} ({where})"
