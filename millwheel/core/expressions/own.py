"""Functions of the user's own in expressions, by the names that a pipeline gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.core.expressions.declared import MOST_ARGUMENTS


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of the user's: ``call`` raises RecordError for whatever it raises. It takes at
    least ``least`` arguments and at most ``most``, as far as that is known."""

    name: str
    call: Callable[..., Any]
    least: int = 0
    most: int = MOST_ARGUMENTS

    def complaint(self, count: int) -> str:
        """Why it cannot be called with so many arguments; "" if it can."""
        if self.least <= count <= self.most:
            return ""
        several = f"at least {self.least}" if self.most >= MOST_ARGUMENTS else f"{self.least}"
        if self.least < self.most < MOST_ARGUMENTS:
            several = f"{self.least} to {self.most}"
        plural = "" if several.split()[-1] == "1" else "s"
        return f"{self.name}() takes {several} argument{plural}, not {count}"
