"""The declaration of a function of expressions: its signature, its rule for nulls, one line and
examples, which the docs repeat and tests run; its row form and perhaps a column form. And functions
of the user's own, by the names that a pipeline gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millwheel.core.lazy_polars import dtype, pl

if TYPE_CHECKING:
    from millwheel.core.expressions.terms import Term


MOST_ARGUMENTS = 100
"""The most arguments of a function that takes any number."""
TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "int": (int,),
    "number": (int, float),
    "float": (float,),
    "bool": (bool,),
    "time": (int, str),
    "list": (list, tuple),
    "any": (object,),
}
"""The types of signatures, with the classes of their values. A time is a whole number of µs since
1970 UTC, or ISO 8601 text."""
_SIGNATURE = re.compile(r"(\w+)\((.*)\) -> (\w+)")
_PARAMETER = re.compile(r"(\w+)(\?|\.\.\.)?: (\w+)")


class Nulls(Enum):
    """The way a function treats an argument that is null."""

    REFUSED = "error"
    """The record goes to the dead letters, as with operators."""
    TAKEN = "a value"
    """Null is an argument like others; the function's description says how."""


class NullLogic(Enum):
    """The meaning of nulls in expressions: the option ``nulls`` of a pipeline."""

    ERROR = "error"
    """Operators and functions that cannot compute with null refuse it; null is equal to null."""
    SQL = "sql"
    """Null is unknown: the result of computing with it is null, and logic is three-valued."""


def is_three_valued(compile_expression: Callable[[str], Any]) -> bool:
    """Whether the expressions that it compiles have the nulls of SQL."""
    nulls: NullLogic = compile_expression("true").dialect.nulls
    return nulls is NullLogic.SQL


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a signature. ``takes`` is a key of :data:`TYPES`."""

    name: str
    takes: str
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True)
class Function:
    """A function of the language: ``act`` is its row form.

    ``signature`` reads ``find(text: text, part: text) -> int``; a parameter ``name?`` can be left
    out, and the last, ``name...``, be given any number of times. ``examples`` are expressions with
    their values. ``checks`` judge constant arguments when an expression is compiled, by the name
    of the parameter; they raise ValueError. ``bounded``: its cost is at most in proportion to the
    size of its arguments, so that clients may call it. ``lazy``: ``act`` gets functions without
    arguments, which compute the arguments. ``columns`` is the column form: it gives the bits of
    the row form for columns without nulls and NaN, or raises NoColumns.
    """

    signature: str
    act: Callable[..., Any]
    description: str
    examples: tuple[tuple[str, Any], ...]
    nulls: Nulls = Nulls.REFUSED
    checks: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    bounded: bool = True
    lazy: bool = False
    columns: Callable[[Sequence[Term]], Term] | None = None

    @cached_property
    def name(self) -> str:
        return self._parts[0]

    @cached_property
    def gives(self) -> str:
        """The type of the result."""
        return self._parts[2]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(name, takes, mark == "?", mark == "...")
            for name, mark, takes in _PARAMETER.findall(self._parts[1])
        )

    @cached_property
    def least(self) -> int:
        """The fewest arguments."""
        return sum(not each.optional and not each.repeated for each in self.parameters)

    @cached_property
    def most(self) -> int:
        """The most arguments."""
        return MOST_ARGUMENTS if self.parameters[-1].repeated else len(self.parameters)

    @property
    def arity(self) -> str:
        """How many arguments, in words."""
        plural = "s" if self.least > 1 else ""
        if self.least == self.most:
            return f"{self.least} argument{plural}"
        return (
            f"{self.least} to {self.most} arguments"
            if self.most < MOST_ARGUMENTS
            else f"at least {self.least} argument{plural}"
        )

    def parameter(self, index: int) -> Parameter:
        """The parameter of the argument with this index."""
        return self.parameters[min(index, len(self.parameters) - 1)]

    def complaint(self, index: int, constant: Any) -> str:
        """Why the argument cannot be this constant; "" if it can."""
        parameter = self.parameter(index)
        if constant is None:
            return "" if self.nulls is Nulls.TAKEN else f"takes no null as {parameter.name}"
        if not isinstance(constant, TYPES[parameter.takes]):
            return f"takes {parameter.takes} as {parameter.name}, not {constant!r:.60}"
        check = self.checks.get(parameter.name)
        try:
            if check is not None:
                check(constant)
        except ValueError as ex:
            return f"does not take {constant!r:.60} as {parameter.name}: {ex}"
        return ""

    @cached_property
    def _parts(self) -> tuple[str, str, str]:
        match = _SIGNATURE.fullmatch(self.signature)
        if match is None:
            raise ValueError(f"{self.signature!r} is not a signature")
        name, parameters, gives = match.groups()
        return name, parameters, gives


def table(*functions: Function) -> Mapping[str, Function]:
    """Functions by their names."""
    return {function.name: function for function in functions}


VALUE, KNOWN = "value", "known"
"""The fields of the results of a column form."""


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function of the user's: ``call`` raises RecordError in place of any other error. It takes
    at least ``least`` arguments and at most ``most``, as far as its signature states them.

    ``columns`` is its column form, if it has one, whose values are of the kind ``returns``: it gets
    a column that is true for the requested records, and the columns of their arguments; it returns
    structs of :func:`known_dtype`, with the values of the row form where they are known."""

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
    """The type of the results of a column form."""
    return pl.Struct({VALUE: dtype(returns), KNOWN: pl.Boolean})


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of the language between pipelines: the meaning of nulls, and the functions of
    the user's."""

    nulls: NullLogic = NullLogic.ERROR
    own: Mapping[str, OwnFunction] = field(default_factory=dict)


PLAIN = Dialect()
"""The language without the settings of a pipeline."""
