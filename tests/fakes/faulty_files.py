"""Files that misbehave at a chosen call: stop the process, fail, or let somebody else act in
between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.adapters.spaces.files import Files
from millwheel.adapters.spaces.object_space import ObjectSpace


class Killed(BaseException):
    """The process ended here. No ``except Exception`` of the code under test may go on after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the ``number``-th of its process, from 0."""

    number: int
    name: str
    args: tuple[Any, ...]


Hook = Callable[[Call], None]


def ignore(call: Call) -> None:
    """No fault."""


class FaultyFiles:
    """Any :class:`Files` or :class:`ObjectSpace`, with a say before and after every call. A hook
    that raises is the fault; after it raised Killed, nothing works any more."""

    def __init__(
        self, inner: Files | ObjectSpace, before: Hook = ignore, after: Hook = ignore
    ) -> None:
        self._inner = inner
        self.before, self.after = before, after
        self.calls = 0
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method):
            return method

        def call(*args: Any) -> Any:
            if self.dead:
                raise Killed
            made = Call(self.calls, name, args)
            self.calls += 1
            try:
                self.before(made)
                answer = method(*args)
                self.after(made)
            except Killed:
                self.dead = True
                raise
            return answer

        return call


def kill_at(number: int) -> Hook:
    """End the process at its ``number``-th call."""

    def hook(call: Call) -> None:
        if call.number == number:
            raise Killed

    return hook


def fail_when(name: str, number: int, times: int = 1) -> Hook:
    """Let the next ``times`` calls of ``name`` fail with errno ``number``."""
    left = times

    def hook(call: Call) -> None:
        nonlocal left
        if call.name == name and left > 0:
            left -= 1
            raise OSError(number, f"injected in {name}")

    return hook
