"""Intercepts the calls of a process to external systems: each can be the last one, fail, or lose
its reply."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

T = TypeVar("T")
Act = Callable[[], object]


class Killed(BaseException):
    """The process was killed. It is not an ``Exception``, so that the code under test does not
    catch it."""


class Outside:
    """The external calls of one process. ``before`` and ``after`` map the number of a call to an
    action around it; an action that raises is the fault. After Killed, every call fails."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.before: dict[int, Act] = {}
        self.after: dict[int, Act] = {}
        self.away: Callable[[], Exception] | None = None
        self.dead = False

    def call(self, name: str, function: Callable[..., T], *words: Any, **named: Any) -> T:
        """Make an external call; ``name`` describes it for people."""
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
    """An object, for example a connection, whose methods ``names`` are external calls. ``made``
    wraps the results of some of them, for example a cursor."""

    def __init__(
        self, inner: Any, outside: Outside, names: Collection[str], made: Collection[str] = ()
    ) -> None:
        self._inner, self._outside, self._names, self._made = (
            inner,
            outside,
            frozenset(names),
            frozenset(made),
        )

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name in self._made:
            return lambda *words, **named: WatchedClient(
                attribute(*words, **named), self._outside, self._names, self._made
            )
        if name not in self._names:
            return attribute
        return lambda *words, **named: self._outside.call(name, attribute, *words, **named)

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
