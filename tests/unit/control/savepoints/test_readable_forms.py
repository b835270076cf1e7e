"""What counts as readable is read, and means the same: over every pair of a catalogue of types,
with values of each."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from millwheel.control.savepoints.stored_forms import stored_form, unreadable_form


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Farther(msgspec.Struct):
    x: float
    y: int = 0
    z: int = 0


class Swapped(msgspec.Struct):
    y: int
    x: int = 0


class Demanding(msgspec.Struct):
    x: int
    z: int
    y: int = 0


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Brief(msgspec.Struct, omit_defaults=True):
    x: int = 5
    y: int = 0


class BriefOtherwise(msgspec.Struct, omit_defaults=True):
    x: int = 6
    y: int = 0


class Tagged(msgspec.Struct, tag="t"):
    x: int


class OtherTag(msgspec.Struct, tag="o"):
    x: int


class Row(msgspec.Struct, array_like=True):
    a: int = 0


class LongerRow(msgspec.Struct, array_like=True):
    a: int = 0
    b: int = 7


class OtherwiseRow(msgspec.Struct, array_like=True):
    b: int = 7
    a: int = 0


class LongRow(msgspec.Struct, array_like=True):
    a: int
    b: int


class RenamedRow(msgspec.Struct, array_like=True):
    first: int = 0


class Pair(NamedTuple):
    a: int
    b: int = 9


class TurnedPair(NamedTuple):
    b: int
    a: int = 0


class Triple(NamedTuple):
    a: int
    b: int = 9
    c: int = 1


@dataclasses.dataclass
class Data:
    x: int
    y: int = 0


class Typed(TypedDict):
    x: int
    y: int


class Loose(TypedDict, total=False):
    x: int
    y: int


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Exchanged(enum.Enum):
    GREEN = 1
    RED = 2


class MoreColors(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Names(enum.Enum):
    RED = "a"


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


class OtherTree(msgspec.Struct):
    name: str
    below: list[OtherTree] = []
    weight: int = 1


class WrongTree(msgspec.Struct):
    name: str
    below: list[WrongTree | int] = []
    weight: str = ""


NOON = dt.datetime(2026, 1, 1, 12)
AWARE = NOON.replace(tzinfo=dt.timezone.utc)
VALUES: list[tuple[Any, list[Any]]] = [
    (Any, [1, "a", None, [1], {"a": 1}, b"x", 1.5, True]),
    (int, [0, -5, 2**40]),
    (float, [0.5, 2.0]),
    (bool, [True, False]),
    (str, ["", "a", "2026-01-01"]),
    (bytes, [b"\xff"]),
    (None, [None]),
    (int | None, [1, None]),
    (float | None, [1.5, None]),
    (str | None, ["a", None]),
    (int | str, [1, "1"]),
    (dt.datetime, [NOON, AWARE]),
    (dt.datetime | None, [AWARE, None]),
    (Annotated[dt.datetime, msgspec.Meta(tz=True)], [AWARE]),
    (dt.date, [NOON.date()]),
    (dt.time, [NOON.time()]),
    (dt.timedelta, [dt.timedelta(1)]),
    (uuid.UUID, [uuid.UUID(int=5)]),
    (Decimal, [Decimal("1.50")]),
    (Annotated[int, msgspec.Meta(ge=0)], [0, 5]),
    (Literal["a", "b"], ["a", "b"]),
    (Literal["a"], ["a"]),
    (Literal[1, 2], [1, 2]),
    (list[int], [[], [3, 1, 1]]),
    (list[float], [[1.5]]),
    (list[str], [["a"]]),
    (list[Any], [[1, "a"]]),
    (tuple[int, ...], [(), (2, 1)]),
    (tuple[int, int], [(2, 1)]),
    (tuple[int, str], [(1, "a")]),
    (set[int], [{3, 1}]),
    (frozenset[int], [frozenset({3, 1})]),
    (dict[str, int], [{"a": 1}]),
    (dict[int, int], [{1: 1}]),
    (dict[float, int], [{1.5: 1}]),
    (dict[dt.date, int], [{NOON.date(): 1}]),
    (dict[str, Point], [{"x": Point(1)}]),
    (dict[str, Farther], [{"x": Farther(1.5)}]),
    (dict[str, Any], [{"x": 1}]),
    *[(kind, [kind(1, 2)]) for kind in (Point, Farther, Swapped, Brief, BriefOtherwise)],
    *[(kind, [kind(1, 2)]) for kind in (LongerRow, OtherwiseRow, LongRow)],
    *[(kind, [kind(5)]) for kind in (Strict, Tagged, OtherTag, Row, RenamedRow, Pair, TurnedPair,
    Triple, Data)],
    (Brief, [Brief()]),
    (Demanding, [Demanding(1, 2)]),
    (Typed, [{"x": 1, "y": 2}]),
    (Loose, [{"x": 1}, {}]),
    *[(kind, list(kind)) for kind in (Color, Exchanged, MoreColors, Names)],
    *[(kind, [kind("a", [kind("b")])]) for kind in (Tree, OtherTree, WrongTree)],
    (Point | None, [Point(1), None]),
    (Tagged | OtherTag, [Tagged(1), OtherTag(2)]),
]  # fmt: skip


def meaning(value: Any) -> Any:
    """What a value says to code that reads it by names of fields."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return ["in order", *map(meaning, value)]
    if isinstance(value, (set, frozenset)):
        return ["in order", *sorted(map(meaning, value))]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else (type(key), key): meaning(each)
            for key, each in value.items()
        }
    if hasattr(value, "_asdict"):
        return meaning(value._asdict())
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        names = getattr(value, "__struct_fields__", None) or [
            each.name for each in dataclasses.fields(value)
        ]
        return {name: meaning(getattr(value, name)) for name in names}
    return float(value) if type(value) in (int, float) else value


def differs(old: Any, new: Any) -> bool:
    """Fields may be added and removed, everything else is the same."""
    if isinstance(old, dict) and isinstance(new, dict):
        return any(differs(old[name], new[name]) for name in old.keys() & new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(map(differs, old, new))
    return bool(type(old) is not type(new) or old != new)


def form(of: Any) -> dict[str, Any]:
    """As it is read back from the file of a root."""
    return json.loads(msgspec.json.encode(stored_form(of)))


FORMS = [(of, values, form(of)) for of, values in VALUES]


def test_every_value_of_a_type_that_counts_as_readable_is_read_with_its_meaning() -> None:
    for old, values, was in FORMS:
        for new, _, becomes in FORMS:
            if unreadable_form(was, becomes) == "":
                for value in values:
                    data = msgspec.msgpack.encode(value)
                    try:
                        read = msgspec.msgpack.decode(data, type=new)
                    except msgspec.ValidationError as error:
                        pytest.fail(f"{old} counts as readable by {new}: {value!r}: {error}")
                    # A set has no order, so a list of it may have any.
                    unordered = isinstance(value, (set, frozenset)) and isinstance(
                        read, (list, tuple)
                    )
                    found = meaning(set(read) if unordered else read)
                    assert not differs(meaning(value), found), (
                        f"{old} to {new}: {value!r} becomes {read!r}"
                    )


def test_a_type_reads_itself() -> None:
    assert [of for of, _, made in FORMS if unreadable_form(made, made)] == []


READABLE: list[tuple[Any, Any]] = [
    (int, float),
    (int, int | None),
    (int, Any),
    (Point, Farther),
    (Point, Data),
    (Point, Loose),
    (Typed, Point),
    (Point | None, Farther | None),
    (list[int], list[float]),
    (list[int], tuple[int, ...]),
    (tuple[int, int], list[int]),
    (tuple[int, str], tuple[float, str]),
    (set[int], frozenset[int]),
    (dict[str, Point], dict[str, Farther]),
    (dict[int, int], dict[int, float]),
    (Literal["a"], Literal["a", "b"]),
    (Literal["a", "b"], str),
    (Row, LongerRow),
    (LongerRow, Row),
    (Row, RenamedRow),
    (Pair, Triple),
    (Color, MoreColors),
    (Tree, OtherTree),
    (Annotated[int, msgspec.Meta(ge=0)], int),
]
UNREADABLE: list[tuple[Any, Any, str]] = [
    (int, str, "was integer and becomes text"),
    (float, int, "was number and becomes integer"),
    (int | None, int, "was null"),
    (Any, int, "was anything"),
    (dt.datetime, str, "was datetime and becomes text"),
    (str, dt.datetime, "was text and becomes datetime"),
    (dt.date, Any, "was date and becomes anything"),
    (Point, Any, "becomes anything"),
    (Farther, Point, "its field 'x' was number"),
    (Point, Demanding, "gets the field 'z', which old values lack"),
    (Loose, Typed, "gets the field 'x', which old values may lack"),
    (Point, Strict, "lost the field 'y'"),
    (Brief, BriefOtherwise, "the default of 'x'"),
    (list[str], list[int], "an item of the value"),
    (list[int], set[int], "was a list of integer"),
    (dict[str, int], dict[str, str], "an entry of the value"),
    (dict[str, int], dict[int, int], "a key of the value was text and becomes integer"),
    (dict[str, int], Point, "becomes an object"),
    (Literal["a", "b"], Literal["a"], "may hold 'b'"),
    (Row, LongRow, "gets the field 'a', which old values may lack"),
    (LongerRow, OtherwiseRow, "place 0 of the value was the field 'a' and is 'b'"),
    (Row, OtherwiseRow, "add fields at the end"),
    (Pair, TurnedPair, "place 0"),
    (Triple, Pair, "has fewer items"),
    (MoreColors, Color, "may hold BLUE"),
    (Color, Exchanged, "1 in the value was RED and is GREEN"),
    (Tagged, OtherTag, "the tag of the value has changed"),
    (int, str | None, "was integer and becomes text or null"),
    (int, Annotated[int, msgspec.Meta(ge=0)], "must have ge 0 now"),
    (Tree, WrongTree, ""),
    (OtherTree, WrongTree, "its field 'weight'"),
]


@pytest.mark.parametrize(("old", "new"), READABLE)
def test_what_can_be_read_is_said_to_be(old: Any, new: Any) -> None:
    assert unreadable_form(form(old), form(new)) == ""


@pytest.mark.parametrize(("old", "new", "words"), UNREADABLE)
def test_what_cannot_be_read_is_said_with_the_place(old: Any, new: Any, words: str) -> None:
    told = unreadable_form(form(old), form(new))
    assert words in told
    assert told or (old, new) == (Tree, WrongTree)  # whose new field has a default
