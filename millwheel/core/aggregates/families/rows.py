"""max_by, min_by, first_row, last_row, top_rows: aggregators that choose whole records by an order.

An order is a list of expressions, each with a direction; behind them stand the time (the earlier
first; for ``last_row`` the later) and the record's bytes, so that the choice is a function of the
records and not of how they come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import Any

import msgspec

from millwheel.core.aggregates.base import AggregateFunction, Aggregator, wrong
from millwheel.core.aggregates.families.choice import check_ordered, rank
from millwheel.core.aggregates.plain_data import copied
from millwheel.errors import RecordError

_ORDER = re.compile(
    r"(?P<text>.*?\S)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.DOTALL
)
content = msgspec.msgpack.Encoder(order="deterministic").encode
as_it_stands = msgspec.msgpack.Encoder().encode
Entry = list[Any]
"""[the values that the order reads, timestamp (µs), record]."""
_NUMBERS: frozenset[type] = frozenset((int, float))
_SEVERAL = 2  # Fixed: fewer have one order


@dataclass(frozen=True, slots=True)
class Order:
    """One part of an order: an expression over the record, its direction, and whether nulls come
    ``first`` or ``last``, in either direction ("": they have no place)."""

    text: str
    descending: bool = False
    nulls: str = ""

    def checked(self, function: str, value: Any) -> Any:
        """A value that has a place. Raises RecordError for any other."""
        if value is None and self.nulls:
            return None
        return check_ordered(function, value, self.text)

    def sort_key(self, value: Any) -> Any:
        """A key that is less the earlier a checked value comes."""
        if value is None:
            return (0,) if self.nulls == "first" else (2,)
        key = _reversed(value) if self.descending else rank(value)
        return (1, key) if self.nulls else key


def order_of(text: str) -> Order:
    """``price``, ``price asc`` or ``price desc``, each also with ``nulls first`` or ``nulls
    last``."""
    match = _ORDER.fullmatch(text)
    if match is None:
        return Order(text)
    return Order(match["text"], match["way"] == "desc", match["nulls"] or "")


def _fitting(column: Sequence[Any]) -> bool:
    kinds = set(map(type, column))
    if kinds == {int}:
        return bool(min(column) >= -(2**63) and max(column) < 2**63)
    return kinds == {float} and not any(map(isnan, column))


def _reversed(value: Any) -> tuple[int, Any, bool]:
    """A key that is less where the rank of a value is greater."""
    if isinstance(value, str):
        return (-1, _Descending(value), True)
    return (0, -value, type(value) is not float)


class _Descending:
    """A text that is less where the text is greater."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]


class _Bytes:
    """A record as its bytes, for order. They are made only where everything before them is equal.
    The order of its fields decides last: columns may have another one."""

    def __init__(self, row: Any) -> None:
        self._row = row

    @cached_property
    def data(self) -> tuple[bytes, bytes]:
        return content(self._row), as_it_stands(self._row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes) and self.data == other.data

    def __lt__(self, other: _Bytes) -> bool:
        return self.data < other.data

    __hash__ = None  # type: ignore[assignment]


class ChosenRows(Aggregator[list[Entry]]):
    """The first ``k`` records of an order. ``one``: the result is the record alone (None for no
    records); else a list, in which the field ``rank`` has the rank of each, from 1."""

    ordered = False
    of_rows = True

    def __init__(
        self,
        function: str,
        orders: Sequence[Order] = (),
        k: int = 1,
        one: bool = True,
        latest: bool = False,
        rank: str = "",
    ) -> None:
        self._function = function
        self._orders = tuple(orders)
        self.k = k
        self.one = one
        self.latest = latest
        self.rank = rank
        self._keys = tuple(order.sort_key for order in orders)
        self.orders = tuple(order.text for order in orders)
        self.descending = tuple(order.descending for order in orders)

    def check(self, value: Any, name: str) -> Entry:
        """``value`` is [the values that the order reads, record]."""
        values, row = value
        if not self.one and None in values:
            self._check_nulls(values)
        checked = [
            order.checked(self._function, each)
            for each, order in zip(values, self._orders, strict=True)
        ]
        if self.rank and not isinstance(row, dict):
            raise RecordError(
                f"{self._function} adds the field {self.rank!r} to maps only, not to"
                f" {type(row).__name__}"
            )
        return [checked, row]

    def _check_nulls(self, values: Sequence[Any]) -> None:
        for value, order in zip(values, self._orders, strict=True):
            if value is None and not order.nulls:
                way = " desc" if order.descending else ""
                why = wrong(self._function, order.text, value, "a number or text")
                raise RecordError(
                    f"{why}; {order.text + way + ' nulls last'!r} (or first) gives nulls a place"
                )

    def fitting(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether a short look at each column shows that :meth:`check` takes all values of the
        orders: numbers of one kind, none of them NaN or beyond 64 bits."""
        return all(map(_fitting, columns))

    def create(self) -> list[Entry]:
        return []

    def add(self, acc: list[Entry], value: Any, timestamp: int) -> list[Entry]:
        entry = [value[0], timestamp, value[1]]
        if len(acc) == self.k and not self.sort_key(entry) < self.sort_key(acc[-1]):
            return acc
        return self.first([*acc, entry])

    def add_many(
        self, acc: list[Entry], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[Entry]:
        entries = [
            [value[0], timestamp, value[1]]
            for value, timestamp in zip(values, timestamps, strict=True)
        ]
        return self.first([*acc, *entries])

    def merge(self, acc: list[Entry], other: list[Entry]) -> list[Entry]:
        own = set(map(id, acc))
        # only what stays is copied: of a bundle that is little
        return [
            entry if id(entry) in own else copied(entry) for entry in self.first([*acc, *other])
        ]

    def result(self, acc: list[Entry]) -> Any:
        if self.one:
            return acc[0][2] if acc else None
        if self.rank:
            return [{**entry[2], self.rank: number} for number, entry in enumerate(acc, 1)]
        return [entry[2] for entry in acc]

    def first(self, entries: list[Entry]) -> list[Entry]:
        """The first ``k`` of some entries, in order."""
        if len(entries) < _SEVERAL:
            return entries
        keys = self._plain_keys(entries)
        if keys is None:
            return sorted(entries, key=self.sort_key)[: self.k]
        if self.k == 1:
            return [entries[keys.index(min(keys))]]
        return [entries[index] for index in sorted(range(len(keys)), key=keys.__getitem__)][
            : self.k
        ]

    def may_precede(self, values: Sequence[Any], last: Any) -> Iterable[int]:
        """The indexes of checked values of the first order that do not come behind ``last``, which
        is one, too; all indexes, where a short look does not show it."""
        kinds = {*map(type, values), type(last)}
        if len(kinds) > 1 or not kinds <= _NUMBERS:
            return range(len(values))
        if self._orders[0].descending:
            return [index for index, value in enumerate(values) if value >= last]
        return [index for index, value in enumerate(values) if value <= last]

    def _plain_keys(self, entries: list[Entry]) -> list[tuple[Any, ...]] | None:
        """Keys that order entries as :meth:`sort_key` does, at a tenth of its cost: None where the
        values of an order are not all of one kind of number, or records decide."""
        columns: list[Any] = []
        for index, order in enumerate(self._orders):
            column = [entry[0][index] for entry in entries]
            kinds = set(map(type, column))
            if len(kinds) > 1 or not kinds <= _NUMBERS:
                return None
            columns.append([-value for value in column] if order.descending else column)
        times = [-entry[1] if self.latest else entry[1] for entry in entries]
        keys = list(zip(*columns, times, strict=True))
        return keys if len(set(keys)) == len(keys) else None

    def sort_key(self, entry: Entry) -> tuple[Any, ...]:
        """A key that is less the earlier an entry comes."""
        values, timestamp, row = entry
        parts = [key(value) for key, value in zip(self._keys, values, strict=True)]
        return (*parts, -timestamp if self.latest else timestamp, _Bytes(row))


def _by(function: str, descending: bool) -> Callable[[Mapping[str, Any]], Aggregator[Any]]:
    def make(options: Mapping[str, Any]) -> Aggregator[Any]:
        texts = _texts(function, options, f"{{{function}: price}}")
        orders = [Order(text, descending) for text in texts]
        return ChosenRows(function, orders)

    return make


def _top_rows(options: Mapping[str, Any]) -> Aggregator[Any]:
    example = "{top_rows: [price desc, at], k: 10}"
    orders = list(map(order_of, _texts("top_rows", options, example)))
    k, name = options.get("k"), options.get("rank", "")
    if type(k) is not int or k < 1:
        raise ValueError(
            f"top_rows needs `k`, a whole number of at least 1, not {k!r}; write {example}"
        )
    if not isinstance(name, str) or (name and not name.isidentifier()):
        raise ValueError(f"`rank` is the name of a field, not {name!r}; write rank: place")
    return ChosenRows("top_rows", orders, k, one=False, rank=name)


def _texts(function: str, options: Mapping[str, Any], example: str) -> list[str]:
    by = options.get("by")
    texts = [by] if isinstance(by, str) else by
    if not isinstance(texts, list) or not all(isinstance(t, str) and t for t in texts or [None]):
        raise ValueError(
            f"{function} needs a field or an expression to order by, or a list of them, not"
            f" {by!r}; write {example}"
        )
    return texts


FUNCTIONS = {
    "max_by": AggregateFunction(
        _by("max_by", descending=True),
        ("by",),
        gives="the record with the largest value of a field or an expression",
        keeps="one record",
        example={"by": "n"},
        of_rows=True,
    ),
    "min_by": AggregateFunction(
        _by("min_by", descending=False),
        ("by",),
        gives="the record with the smallest value",
        keeps="one record",
        example={"by": "n"},
        of_rows=True,
    ),
    "first_row": AggregateFunction(
        lambda options: ChosenRows("first_row"),
        gives="the earliest record, whole",
        keeps="one record",
        of_rows=True,
    ),
    "last_row": AggregateFunction(
        lambda options: ChosenRows("last_row", latest=True),
        gives="the latest record, whole",
        keeps="one record",
        of_rows=True,
    ),
    "top_rows": AggregateFunction(
        _top_rows,
        ("by", "k", "rank"),
        gives=(
            "the first `k` records by one or several orders, such as `[price desc nulls last, at]`;"
            " with `rank: place`, each has the field `place`, from 1"
        ),
        keeps="k records",
        example={"by": ["n desc"], "k": 2},
        of_rows=True,
    ),
}
