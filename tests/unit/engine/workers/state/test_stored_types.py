"""Values of state: what is accepted comes back as the same type and value, in the same bundle and
after a crash."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import typing
import uuid
from collections import Counter, OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from millwheel import Computation, InjectionSource, ListState, MapState, Pipeline, ValueState
from millwheel.engine.workers.state.stored_types import Certain, StoredType, difference
from millwheel.errors import RecordError
from millwheel.testing import PipelineHarness


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Named(typing.NamedTuple):
    x: int


class Struct(msgspec.Struct):
    n: int = 0
    mean: float = 0.0


class Nested(msgspec.Struct):
    parts: list[Struct] = []
    seen: set[int] = set()


class Frozen(msgspec.Struct, frozen=True):
    mean: float = 0.0


Pair = namedtuple("Pair", "a b")
UTC, EAST = dt.timezone.utc, dt.timezone(dt.timedelta(hours=2))
ACCEPTED: list[tuple[Any, Any]] = [
    *[(Any, value) for value in (None, True, 1, -(2**63), 2**64 - 1, 1.5, -0.0, math.inf, "ä",
    b"\x00", [1, [2.0]])],
    *[(Any, value) for value in ({"a": [1, {"b": None}]}, {1: 2, 1.5: 3, None: 4, b"x": 5},
    {True: 1}, [])],
    (int, 5), (float, 2.5), (float, math.nan), (str, ""), (bytes, b""), (bool, False), (int | None,
    None),
    (set, {1, "a"}), (set[int], {1, 2}), (frozenset, frozenset({1})), (set, {(1, 2)}), (tuple, (1,
    "a")),
    (tuple[int, str], (1, "a")), (list[tuple[int, int]], [(1, 2)]), (dict[str, set[int]],
    {"a": {1}}),
    (Color, Color.RED), (Level, Level.HIGH), (Flags, Flags.A | Flags.B), (Point, Point(1, 2.0)),
    (Named, Named(1)),
    (Struct, Struct(1, 2.0)), (Nested, Nested([Struct(1)], {1})), (Frozen, Frozen(1.5)), (Decimal,
    Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=5)), (dt.date, dt.date(2026, 1, 1)), (dt.datetime, dt.datetime(2026,
    1, 1, 1, 2, 3, 4)),
    (dt.datetime, dt.datetime(2026, 1, 1, tzinfo=UTC)), (dt.time, dt.time(1, 2, 3, 4)),
    (dt.timedelta, dt.timedelta(1, 2, 3)),
    (dict[int, Color], {1: Color.RED}), (list[Decimal], [Decimal("NaN")]), (dict, {"a": 1}), (list,
    [None]),
]  # fmt: skip
CONVERTED: list[tuple[Any, Any, Any]] = [
    (float, 2, 2.0), (list[float], [1, 2.5], [1.0, 2.5]), (dict[str, float], {"a": 1}, {"a": 1.0}),
    (Struct, Struct(1, 2), Struct(1, 2.0)), (Frozen, Frozen(1), Frozen(1.0)),
    (dt.datetime, dt.datetime(2026, 1, 1, 2, tzinfo=EAST), dt.datetime(2026, 1, 1, tzinfo=UTC)),
]  # fmt: skip


class _Plain:
    def __repr__(self) -> str:
        return "an object"


PLAIN = _Plain()

REFUSED: list[tuple[Any, Any, str]] = [
    (Any, {1}, "declare the type, set"), (Any, (1, 2), "declare the type, tuple"),
    (Any, Color.RED, "declare the type, Color"), (Any, Level.HIGH, "declare the type, Level"),
    (Any, Point(1), "declare the type, Point"), (Any, Struct(1), "declare the type, Struct"),
    (Any, Decimal("1.1"), "declare the type, Decimal"), (Any, uuid.UUID(int=5),
    "declare the type, UUID"),
    (Any, dt.date(2026, 1, 1), "declare the type, date"), (Any, dt.datetime(2026, 1, 1),
    "declare the type, datetime"),
    (Any, dt.timedelta(1), "declare the type, timedelta"), (Any, Named(1),
    "declare the type, Named"),
    (Any, bytearray(b"x"), "bytes"), (Any, Counter("aa"), "store dict(value)"),
    (Any, OrderedDict(a=1), "store dict(value)"),
    (Any, defaultdict(int, a=1), "store dict(value)"), (Any, {frozenset({1}): 1}, "key"), (Any,
    PLAIN, "_Plain"),
    (list, [(1, 2)], "declare the type, list[tuple]"), (dict, {"a": {1}},
    "declare the type, dict[str, set]"),
    (dict[str, int], {"a": 1.5}, "Expected `int`"), (dict[str, int], Counter(a=1),
    "store dict(value)"),
    (int, 2.5, "Expected `int`"), (int, True, "Expected `int`"), (int, Level.HIGH,
    "declare the type, Level"),
    (int, 2**64, "cannot be stored"),
    (float, 2**53 + 1, "come back"), (float, True, "Expected `float`"), (float, Decimal("1.5"),
    "does not fit"),
    (str, Color.RED, "come back"), (str, "\ud83d", "cannot be stored"), (list[int], (1, 2),
    "come back"),
    (tuple, [1, 2], "come back"), (set[int], {1.5}, "Expected `int`"), (Struct, Struct(1, "x"),
    "Expected `float`"),
    (Struct, {"n": 1, "mean": 1.0}, "come back"), (Point, {"x": 1}, "come back"), (Struct,
    Point(1), "come back"),
    (Any, [1] * 5 + [{"a": (1,)}], "at [5]['a']"), (Any, complex(1, 2), "complex"), (Any, range(3),
    "range"),
    (dt.datetime, "2026-01-01T00:00:00", "come back"), (typing.Annotated[int, msgspec.Meta(ge=0)],
    -1, ">= 0"),
]  # fmt: skip


def same(value: Any, other: Any) -> bool:
    return difference(value, other) is None and repr(value) == repr(other)


@pytest.mark.parametrize(("declared", "value"), ACCEPTED)
def test_what_is_accepted_comes_back_as_it_was(declared: Any, value: Any) -> None:
    kind = StoredType(declared, "kept", "a value", 1 << 20)
    back, data = kind.form(value)
    assert same(value, back)
    assert same(value, kind.decode(data))


@pytest.mark.parametrize(("declared", "value", "becomes"), CONVERTED)
def test_what_is_converted_is_so_at_the_call(declared: Any, value: Any, becomes: Any) -> None:
    kind = StoredType(declared, "kept", "a value", 1 << 20)
    assert not kind.exact(value)
    back, data = kind.form(value)
    assert same(back, becomes)
    assert same(kind.decode(data), becomes)


@pytest.mark.parametrize(("declared", "value", "why"), REFUSED)
def test_what_would_not_come_back_is_refused_with_what_would_do(
    declared: Any, value: Any, why: str
) -> None:
    kind = StoredType(declared, "kept", "a value", 1 << 20)
    assert not kind.exact(value) or type(value) in (str, int)
    with pytest.raises(RecordError) as told:
        kind.form(value)
    assert why in str(told.value)
    assert "'kept'" in str(told.value)


VALUES = {
    str(number): pair for number, pair in enumerate([*ACCEPTED, *((t, v) for t, v, _ in CONVERTED)])
}


def keeper(declared: Any, value: Any) -> type[Computation]:
    class Keeps(Computation):
        one = ValueState(declared)
        some = ListState(declared)
        many = MapState(str, declared)

        def process_record(self, ctx: Any, record: Any) -> None:
            if record.value["set"]:
                self.one.set(value)
                self.some.append(value)
                self.many["a"] = value
            ctx.produce(
                "out",
                {"found": [repr(self.one.get()), repr(list(self.some)), repr(self.many.get("a"))]},
            )

    return Keeps


@pytest.mark.parametrize("name", [str(n) for n in range(0, len(VALUES), 3)])
def test_a_value_is_the_same_in_its_call_in_its_bundle_and_after_a_crash(name: str) -> None:
    p = Pipeline("kept")
    p.read("s", InjectionSource(), timestamp="t").key_by("k").process(
        keeper(*VALUES[name]), output="out", name="c"
    )
    with PipelineHarness(p) as h:
        h.push("s", [{"t": i, "k": 0, "set": not i} for i in range(2)])
        h.push("s", {"t": 3, "k": 0, "set": False})
        h.crash()
        h.push("s", {"t": 4, "k": 0, "set": False})
        found = h.read("out")
        assert not h.read("dead_letters")
        assert len(found) == 4
        assert all(row == found[0] for row in found)


@pytest.mark.parametrize("count", range(1, 6))
def test_each_field_of_a_struct_is_looked_at(count: int) -> None:
    kind = msgspec.defstruct("Flat", [(f"f{number}", float) for number in range(count)])
    exact = StoredType(kind, "s", "a value", 1_000).exact
    right = [float(number) for number in range(count)]
    assert exact(kind(*right))
    assert not exact(tuple(right))
    for number in range(count):
        assert not exact(kind(*right[:number], number, *right[number + 1 :]))


class Parts(Certain, array_like=True):
    parts: dict[bytes, float]


@pytest.mark.parametrize(
    ("declared", "value"),
    [(Parts, Parts({b"a": 1.5})), (list[Parts], [Parts({b"a": 1.5}), Parts({})])],
)
def test_a_type_that_promises_it_of_all_its_values_is_not_looked_at(
    declared: Any, value: Any
) -> None:
    stored = StoredType(declared, "s", "a value", 1_000)
    assert stored.exact(value)
    kept, data = stored.form(value)
    assert kept is value
    assert stored.decode(data) == value


class Tree(Certain, array_like=True):
    parts: list[Tree]


class Loose(Certain, array_like=True):
    parts: Any


def _tower(levels: int) -> Tree:
    tree = Tree([])
    for _ in range(levels):
        tree = Tree([tree])
    return tree


def _lists(levels: int) -> Loose:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return Loose(value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Tree, _tower(300)),
        (Loose, _lists(600)),
        (list[Loose], [_lists(600)]),
        (list[Tree], [_tower(300)]),
    ],
)
def test_also_its_values_may_not_nest_too_deeply(declared: Any, value: Any) -> None:
    with pytest.raises(RecordError, match="nests more than 500 levels"):
        StoredType(declared, "s", "a value", 10_000).encode(value)


def test_many_parts_beside_each_other_nest_little() -> None:
    value = [Parts({b"a": float(number)}) for number in range(900)]
    stored = StoredType(list[Parts], "s", "a value", 100_000)
    assert stored.decode(stored.encode(value)) == value
    with pytest.raises(RecordError, match="a value"):
        StoredType(list[Parts], "s", "a value", 1_000).encode(value)
