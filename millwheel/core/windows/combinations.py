"""Triggers made of triggers: repeat, or, and, then, once, until.

The state of a combination is the list of its parts' states, where None marks a part that has
finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.triggers import AfterCount, Moment, State, Trigger


def _check(name: str, parts: Sequence[object], minimum: int) -> None:
    strangers = [part for part in parts if not isinstance(part, Trigger)]
    if strangers:
        raise ValueError(
            f"{name} is made of triggers, not of {strangers[0]!r}; write {name}(AfterCount(3))"
        )
    if len(parts) < minimum:
        raise ValueError(f"{name} needs at least {minimum} trigger{'s' if minimum > 1 else ''}")


class _Combination(Trigger):
    """Common base of all combinations. ``parts`` are their triggers."""

    __slots__ = ()

    parts: tuple[Trigger, ...]

    def start(self) -> State:
        return [part.start() for part in self.parts]

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        return [
            None if inner is None else part.add(inner, records, size, moment)
            for part, inner in zip(self.parts, state, strict=True)
        ]

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        present = [state for state in states if state is not None]
        if not present:
            return None
        return self._settle(
            [part.merge([s[i] for s in present], moment) for i, part in enumerate(self.parts)]
        )

    def wake(self, state: State, now_us: int) -> int:
        pairs = [
            (part, inner)
            for part, inner in zip(self.parts, state, strict=True)
            if inner is not None
        ]
        return min((part.wake(inner, now_us) for part, inner in pairs), default=MAX_TIME)

    def shares(self) -> tuple[float, ...]:
        return tuple(share for part in self.parts for share in part.shares())

    @property
    def needs_bytes(self) -> bool:  # type: ignore[override]
        return any(part.needs_bytes for part in self.parts)

    @property
    def on_time(self) -> bool:  # type: ignore[override]
        return any(part.on_time for part in self.parts)

    def _settle(self, state: list[State]) -> State:
        """``state``, or None if the combination has finished with these states of its parts."""
        raise TypeError(f"{type(self).__name__} must define _settle(self, state)")

    def _ready(self, state: list[State], moment: Moment) -> list[bool]:
        return [
            inner is not None and part.ready(inner, moment)
            for part, inner in zip(self.parts, state, strict=True)
        ]


@dataclass(frozen=True, slots=True, init=False)
class AfterAny(_Combination):
    """When any of the triggers is ready; finished as soon as one of them is."""

    parts: tuple[Trigger, ...]

    @property
    def fires_once(self) -> bool:
        return all(part.fires_once for part in self.parts)

    def __init__(self, *parts: Trigger) -> None:
        _check("AfterAny", parts, 1)
        object.__setattr__(self, "parts", parts)

    @property
    def ends_on_time(self) -> bool:
        return any(part.ends_on_time for part in self.parts)

    def ready(self, state: State, moment: Moment) -> bool:
        return any(self._ready(state, moment))

    def fire(self, state: State, moment: Moment) -> State:
        ready = self._ready(state, moment)
        return self._settle(
            [
                part.fire(s, moment) if now_us else s
                for part, s, now_us in zip(self.parts, state, ready, strict=True)
            ]
        )

    def _settle(self, state: list[State]) -> State:
        return None if None in state else state


@dataclass(frozen=True, slots=True, init=False)
class AfterAll(_Combination):
    """When all of the triggers are ready (or have finished); finished when all are."""

    parts: tuple[Trigger, ...]

    @property
    def fires_once(self) -> bool:
        return all(part.fires_once for part in self.parts)

    def __init__(self, *parts: Trigger) -> None:
        _check("AfterAll", parts, 1)
        object.__setattr__(self, "parts", parts)

    @property
    def ends_on_time(self) -> bool:
        return all(part.ends_on_time for part in self.parts)

    def ready(self, state: State, moment: Moment) -> bool:
        return all(
            s is None or ready for s, ready in zip(state, self._ready(state, moment), strict=True)
        )

    def fire(self, state: State, moment: Moment) -> State:
        return self._settle(
            [
                None if s is None else part.fire(s, moment)
                for part, s in zip(self.parts, state, strict=True)
            ]
        )

    def _settle(self, state: list[State]) -> State:
        return None if all(s is None for s in state) else state


@dataclass(frozen=True, slots=True, init=False)
class AfterEach(_Combination):
    """One trigger after the other: each starts when the one before it has finished."""

    parts: tuple[Trigger, ...]

    def __init__(self, *parts: Trigger) -> None:
        _check("AfterEach", parts, 1)
        object.__setattr__(self, "parts", parts)

    def start(self) -> State:
        return [0, self.parts[0].start()]

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        return [state[0], self.parts[state[0]].add(state[1], records, size, moment)]

    def ready(self, state: State, moment: Moment) -> bool:
        return bool(self.parts[state[0]].ready(state[1], moment))

    def fire(self, state: State, moment: Moment) -> State:
        after = self.parts[state[0]].fire(state[1], moment)
        return [state[0], after] if after is not None else self._next(state[0])

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        present = [state for state in states if state is not None]
        for i in range(
            min((state[0] for state in present), default=len(self.parts)), len(self.parts)
        ):
            reached = [state[1] if state[0] == i else None for state in present if state[0] >= i]
            merged = self.parts[i].merge(reached, moment) if reached else self.parts[i].start()
            if merged is not None:
                return [i, merged]
        return None

    def wake(self, state: State, now_us: int) -> int:
        return int(self.parts[state[0]].wake(state[1], now_us))

    def _next(self, index: int) -> State:
        return [index + 1, self.parts[index + 1].start()] if index + 1 < len(self.parts) else None


@dataclass(frozen=True, slots=True, init=False)
class OrFinally(_Combination):
    """Fires with the first trigger until the second one is ready, which fires once more and
    finishes the combination."""

    parts: tuple[Trigger, ...]

    def __init__(self, main: Trigger, until: Trigger) -> None:
        _check("OrFinally", (main, until), 2)
        object.__setattr__(self, "parts", (main, until))

    @property
    def ends_on_time(self) -> bool:
        return any(part.ends_on_time for part in self.parts)

    def ready(self, state: State, moment: Moment) -> bool:
        return any(self._ready(state, moment))

    def fire(self, state: State, moment: Moment) -> State:
        main, until = self.parts
        if until.ready(state[1], moment):
            return self._settle([state[0], until.fire(state[1], moment)])
        return self._settle([main.fire(state[0], moment), state[1]])

    def _settle(self, state: list[State]) -> State:
        return None if None in state else state


class _Around(Trigger):
    """Common base of Repeat and Once: one inner trigger, whose state is also the state of the
    combination."""

    __slots__ = ()

    trigger: Trigger

    def start(self) -> State:
        return self.trigger.start()

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        return self.trigger.add(state, records, size, moment)

    def ready(self, state: State, moment: Moment) -> bool:
        return self.trigger.ready(state, moment)

    def wake(self, state: State, now_us: int) -> int:
        return self.trigger.wake(state, now_us)

    def shares(self) -> tuple[float, ...]:
        return self.trigger.shares()

    @property
    def needs_bytes(self) -> bool:  # type: ignore[override]
        return self.trigger.needs_bytes

    @property
    def on_time(self) -> bool:  # type: ignore[override]
        return self.trigger.on_time


@dataclass(frozen=True, slots=True)
class Repeat(_Around):
    """The trigger again and again: whenever it has finished, it starts anew."""

    trigger: Trigger

    def __post_init__(self) -> None:
        _check("Repeat", (self.trigger,), 1)

    def fire(self, state: State, moment: Moment) -> State:
        after = self.trigger.fire(state, moment)
        return self.trigger.start() if after is None else after

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        present = [state for state in states if state is not None]
        merged = self.trigger.merge(present, moment) if present else None
        return self.trigger.start() if merged is None else merged


EACH_BUNDLE = Repeat(AfterCount(1))
"""The trigger of change logs. It is never called, as it is always ready."""


@dataclass(frozen=True, slots=True)
class Once(_Around):
    """The trigger's first firing only."""

    trigger: Trigger

    @property
    def fires_once(self) -> bool:
        return True

    @property
    def ends_on_time(self) -> bool:
        return self.trigger.ends_on_time

    def __post_init__(self) -> None:
        _check("Once", (self.trigger,), 1)

    def fire(self, state: State, moment: Moment) -> State:
        return None

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return None if None in states else self.trigger.merge(states, moment)
