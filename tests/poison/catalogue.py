"""What is nasty: values as JSON text, objects that only Python can make, and exceptions whose very
text is broken."""

from __future__ import annotations

import asyncio
import builtins
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

TEXTS: Mapping[str, Mapping[str, str]] = {
    "nothing": {"null": "null"},
    "bool": {"true": "true", "false": "false"},
    "whole": {
        "zero": "0",
        "minus one": "-1",
        "int32": "2147483648",
        "beyond exact floats": "9007199254740993",
        "largest int64": "9223372036854775807",
        "smallest int64": "-9223372036854775808",
    },
    "big": {
        "2**63": "9223372036854775808",
        "2**64 - 1": "18446744073709551615",
        "2**64": "18446744073709551616",
        "below int64": "-9223372036854775809",
        "60 digits": "9" * 60,
    },
    "float": {
        "minus zero": "-0.0",
        "tiny": "1e-13",
        "subnormal": "5e-324",
        "largest": "1.7976931348623157e308",
        "smallest": "-1.7976931348623157e308",
        "whole float": "3.0",
        "half": "0.5",
    },
    "no number": {"overflow": "1e400", "NaN": "NaN", "Infinity": "Infinity"},
    "text": {
        "empty text": '""',
        "blank": '" "',
        "digits": '"12"',
        "epoch in text": '"1712011212345"',
        "NaN text": '"nan"',
        "null text": '"null"',
        "internal name": '"a0"',
        "quotes": '"a\\"b\\\\c\'d"',
        "lines": '"a\\r\\nb\\rc"',
        "commas": '"a,b;c\\td"',
    },
    "odd text": {
        "NUL": '"a\\u0000b"',
        "escape": '"\\u001b[31mred"',
        "half an emoji": '"\\ud83d"',
        "emoji": '"\\ud83d\\ude00"',
        "right to left": '"\\u202eabc"',
        "combining": '"e\\u0301"',
        "last code point": '"\\udbff\\udfff"',
        "long": '"' + "x" * 70_000 + '"',
    },
    "times": {
        "ISO": '"2026-01-01T00:00:00Z"',
        "nine digits": '"2026-01-01T00:00:00.123456789Z"',
        "offset": '"2026-01-01T01:00:00+0100"',
        "leap second": '"2025-12-31T23:59:60Z"',
        "year 1": '"0001-01-01T00:00:00+14:00"',
        "year 9999": '"9999-12-31T23:59:59.999999-12:00"',
        "no such day": '"2026-02-30T00:00:00Z"',
        "year 1e6": '"+1000000-01-01T00:00:00Z"',
        "last µs": "9223372036854775806",
        "year 1 in µs": "-62135596800000000",
        "seconds": "1767258000",
        "milliseconds": "1767258000000",
    },
    "list": {
        "empty list": "[]",
        "list": '[1, "a", null]',
        "list of lists": "[[[]]]",
        "long list": "[" + "1," * 5000 + "1]",
    },
    "map": {
        "empty map": "{}",
        "map": '{"a": 1}',
        "empty name": '{"": {"": null}}',
        "odd names": '{"a0": 1, "key": 2, "__retraction__": 3}',
    },
    "deep": {
        "nested lists": "[" * 200 + "]" * 200,
        "lists beyond all limits": "[" * 1000 + "]" * 1000,
        "nested maps": '{"a":' * 300 + "1" + "}" * 300,
    },
}
"""JSON texts by group and name; some are refused by every reader of JSON."""


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Plain:
    a: int = 1
    b: Any = None


class Packed(msgspec.Struct):
    a: int = 1


class Pair(tuple):
    """A subclass of a built-in type."""


class Named(str):
    """Text that is not only text."""


class Opaque:
    """Nobody can encode it."""


class Hostile:
    """Everything that can be asked of it fails."""

    def __repr__(self) -> str:
        raise ValueError("no text")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    def __hash__(self) -> int:
        raise ValueError("no hash")

    def __bool__(self) -> bool:
        raise ValueError("no truth")


Point = collections.namedtuple("Point", "x y")


def _cycle() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def _deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


OBJECTS: Mapping[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "true": lambda: True,
    "one": lambda: 1,
    "float one": lambda: 1.0,
    "minus zero": lambda: -0.0,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "2**63": lambda: 2**63,
    "2**64": lambda: 2**64,
    "-2**64": lambda: -(2**64),
    "text": lambda: "text",
    "half an emoji": lambda: "\ud83d",
    "NUL": lambda: "\0",
    "long text": lambda: "x" * 70_000,
    "bytes": lambda: b"\xff\x00",
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "list": lambda: [1, "a"],
    "tuple": lambda: (1, "a"),
    "nested tuple": lambda: {"a": (1, (2, 3))},
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1}),
    "mixed keys": lambda: {1: "a", "1": "b"},
    "float keys": lambda: {1.5: "a"},
    "tuple keys": lambda: {(1, 2): "a"},
    "none key": lambda: {None: 1},
    "odd name": lambda: {"\ud83d": 1},
    "decimal": lambda: decimal.Decimal("1.10"),
    "decimal nan": lambda: decimal.Decimal("sNaN"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "complex": lambda: 1j,
    "uuid": lambda: uuid.UUID(int=7),
    "datetime": lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    "naive datetime": lambda: datetime.datetime(2026, 1, 1),
    "far datetime": lambda: datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "date": lambda: datetime.date(1, 1, 1),
    "time": lambda: datetime.time(1, 2, 3),
    "timedelta": lambda: datetime.timedelta(days=999999999),
    "enum": lambda: Colour.RED,
    "int enum": lambda: Level.LOW,
    "dataclass": Plain,
    "dataclass of odd": lambda: Plain(b={1, 2}),
    "struct": Packed,
    "namedtuple": lambda: Point(1, 2),
    "subclass of tuple": lambda: Pair((1, 2)),
    "subclass of str": lambda: Named("a"),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "counter": lambda: collections.Counter("aab"),
    "deque": lambda: collections.deque([1]),
    "ordered dict": lambda: collections.OrderedDict(a=1),
    "generator": lambda: (n for n in range(3)),
    "function": lambda: len,
    "class": lambda: int,
    "exception": lambda: ValueError("x"),
    "opaque": Opaque,
    "hostile": Hostile,
    "hostile inside": lambda: {"a": [Hostile()]},
    "cycle": _cycle,
    "deep": lambda: _deep(500),
    "deepest": lambda: _deep(100_000),
}
"""Objects by name, each made anew."""

_NEEDS = {
    "UnicodeDecodeError": ("utf-8", b"\xff", 0, 1, "bad"),
    "UnicodeEncodeError": ("utf-8", "\ud83d", 0, 1, "bad"),
    "UnicodeTranslateError": ("\ud83d", 0, 1, "bad"),
}


class BrokenText(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class WrongText(Exception):
    """Its text is not a text."""

    def __str__(self) -> Any:
        return 7


class Panic(BaseException):
    """As a client library written in Rust raises it: not an Exception."""


def _builtin(name: str) -> Callable[[], BaseException]:
    kind = getattr(builtins, name)
    return lambda: kind(*_NEEDS.get(name, ("text",)))


_GROUPS = {
    "ExceptionGroup",
    "BaseExceptionGroup",
    "_IncompleteInputError",
    "PythonFinalizationError",
}
EXCEPTIONS: Mapping[str, Callable[[], BaseException]] = {
    **{
        name: _builtin(name)
        for name, kind in sorted(vars(builtins).items())
        if isinstance(kind, type) and issubclass(kind, BaseException) and name not in _GROUPS
        and kind.__name__ == name
    },
    "CancelledError": asyncio.CancelledError,
    "panic": lambda: Panic("called `Option::unwrap()` on a `None` value"),
    "broken text": BrokenText,
    "wrong text": WrongText,
    "half an emoji": lambda: ValueError("\ud83d"),
    "NUL": lambda: ValueError("a\0b\x1b[31m"),
    "long text": lambda: ValueError("x" * 200_000),
    "exit 0": lambda: SystemExit(0),
    "no arguments": Exception,
    "odd arguments": lambda: Exception(Hostile(), b"\xff"),
}  # fmt: skip
"""Exceptions by name: every built-in one, and those whose text breaks who prints it."""
