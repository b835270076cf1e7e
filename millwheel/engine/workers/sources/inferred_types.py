"""The types of undeclared fields, inferred from records so that later ones can be read as
columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

_KINDS: Mapping[type, str] = {int: "int", float: "float", str: "str", bool: "bool"}
_MOST_MISSES = 8
"""After this many wrong guesses in a row records are read one by one: reading twice costs more than
columns save."""


class GuessedTypes:
    """The types of the fields that a stream's consumers need, where it declares none.

    They are guessed from a read of rows, and checked in each read of columns, so a wrong guess only
    costs time. ``accepts`` returns whether all consumers can take fields of some types. ``fields``
    are the types (None: unknown).
    """

    def __init__(
        self, names: Collection[str], accepts: Callable[[Mapping[str, str]], bool]
    ) -> None:
        self.names = frozenset(names)
        self._accepts = accepts
        self.fields: Mapping[str, str] | None = None
        self._misses = 0

    def look(self, values: Sequence[Any]) -> None:
        """Guess from the values of a read."""
        if self.fields is not None or not values or self._misses >= _MOST_MISSES:
            return
        kinds = {name: _kind(name, values) for name in sorted(self.names)}
        fields = {name: kind for name, kind in kinds.items() if kind}
        if len(fields) == len(kinds) and self._accepts(fields):
            self.fields = fields
        else:
            self._misses += 1

    def hit(self) -> None:
        """Note that a read of columns was as guessed."""
        self._misses = 0

    def missed(self) -> None:
        """Note that a read of columns was not as guessed."""
        self.fields = None
        self._misses += 1

    def give_up(self) -> None:
        """Guess no more: the input has no columns."""
        self.fields = None
        self._misses = _MOST_MISSES


class WholeRecords:
    """Reads of records of which all fields are passed on. ``fields`` are the types that columns of
    them have: those that are declared, and, by name, those that are inferred for the others. Each
    read is checked."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._declared = fields
        self.fields = fields
        self._misses = 0

    def look(self, values: Sequence[Any]) -> bool:
        """Infer the types of undeclared fields from a read of rows. Returns whether they
        changed."""
        if not self._misses or self.given_up() or not values or type(values[0]) is not dict:
            return False
        names = sorted(set().union(*values) - self._declared.keys())
        kinds = {name: _kind(name, values) for name in names}
        if not all(kinds.values()) or {**self._declared, **kinds} == self.fields:
            return False
        self.fields = {**self._declared, **kinds}
        return True

    def begins(self) -> bool:
        """Whether a first read was not as declared, so that the types are inferred from the next
        one, of rows."""
        return self._misses == 1 and self.fields is self._declared

    def given_up(self) -> bool:
        """Whether too many reads in a row were not as declared for a further one to be tried."""
        return self._misses >= _MOST_MISSES

    def hit(self) -> None:
        """Note that a read of columns was as declared."""
        self._misses = 0

    def missed(self) -> None:
        """Note that a read was not as declared, or that its input has no columns."""
        self._misses += 1


def _kind(name: str, values: Sequence[Any]) -> str:
    """The one type of a field in all values, "" if there is none."""
    try:
        types = {type(value[name]) for value in values}
    except (KeyError, TypeError):
        return ""
    return _KINDS.get(types.pop(), "") if len(types) == 1 else ""
