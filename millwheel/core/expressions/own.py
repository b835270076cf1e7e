"""Functions of the user's own in expressions, by the names that a pipeline gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.expressions.declared import MOST_ARGUMENTS, NullLogic
from millwheel.core.lazy_polars import dtype, pl

VALUE, KNOWN = "value", "known"
"""The fields of what a column form gives."""


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of the user's: ``call`` raises RecordError for whatever it raises. It takes at
    least ``least`` arguments and at most ``most``, as far as that is known.

    ``columns`` is its column form, if it has one, whose values are of the kind ``returns``: it gets
    a column that is true for the records that are asked for, and those of their arguments; it
    gives structs of :func:`known_dtype`, with the values of the row form where they are known."""

    name: str
    call: Callable[..., Any]
    least: int = 0
    most: int = MOST_ARGUMENTS
    returns: str = ""
    columns: Callable[[Sequence[pl.Series]], pl.Series] | None = None

    def complaint(self, count: int) -> str:
        """Why it cannot be called with so many arguments; "" if it can."""
        if self.least <= count <= self.most:
            return ""
        several = f"at least {self.least}" if self.most >= MOST_ARGUMENTS else f"{self.least}"
        if self.least < self.most < MOST_ARGUMENTS:
            several = f"{self.least} to {self.most}"
        plural = "" if several.split()[-1] == "1" else "s"
        return f"{self.name}() takes {several} argument{plural}, not {count}"


def known_dtype(returns: str) -> Any:
    """The type of what a column form gives."""
    return pl.Struct({VALUE: dtype(returns), KNOWN: pl.Boolean})


@dataclass(frozen=True, slots=True)
class Dialect:
    """In what the language of a pipeline differs from others: what nulls are, and the functions of
    the user's."""

    nulls: NullLogic = NullLogic.ERROR
    own: Mapping[str, OwnFunction] = field(default_factory=dict)


PLAIN = Dialect()
"""The language without anything of a pipeline's."""
