"""The way from a process to the outside: every call on it can be the last, can fail, or lose its answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

T = TypeVar("T")
Act = Callable[[], object]


class Killed(BaseException):
    """The process ended here. No ``except Exception`` of the code under test may go on after it."""


class Outside:
    """What one process says to the outside. ``before`` and ``after`` map the number of a call to what happens then:
    an act that raises is the fault. After Killed nothing works any more."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.before: dict[int, Act] = {}
        self.after: dict[int, Act] = {}
        self.away: Callable[[], Exception] | None = None
        self.dead = False

    def call(self, name: str, function: Callable[..., T], *words: Any, **named: Any) -> T:
        """Call the outside; ``name`` is for people."""
        if self.dead:
            raise Killed
        number = len(self.calls)
        self.calls.append(name)
        try:
            if self.away is not None:
                raise self.away()
            self.before.get(number, _nothing)()
            answer = function(*words, **named)
            self.after.get(number, _nothing)()
        except Killed:
            self.dead = True
            raise
        return answer


class WatchedClient:
    """An object whose methods ``names`` are calls to the outside, for example a connection. ``made`` wraps what some
    of them return, for example a cursor."""

    def __init__(self, inner: Any, outside: Outside, names: Collection[str], made: Collection[str] = ()) -> None:
        self._inner, self._outside, self._names, self._made = inner, outside, frozenset(names), frozenset(made)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in self._made:
            return lambda *words, **named: WatchedClient(found(*words, **named), self._outside, self._names, self._made)
        if name not in self._names:
            return found
        return lambda *words, **named: self._outside.call(name, found, *words, **named)

    def __enter__(self) -> WatchedClient:
        self._inner.__enter__()
        return self

    def __exit__(self, *words: Any) -> Any:
        return self._inner.__exit__(*words)

    def __iter__(self) -> Any:
        return iter(self._inner)


def _nothing() -> None:
    """No fault."""


def kill() -> None:
    """The process ends."""
    raise Killed
