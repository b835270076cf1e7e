"""The code of the sweep's pipelines: it does with a record what the record says."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from millwheel import (
    Aggregator,
    Computation,
    Domain,
    ListState,
    MapState,
    Record,
    Timer,
    ValueState,
)
from tests.poison.catalogue import EXCEPTIONS, OBJECTS, Packed, Plain


def odd(value: dict[str, Any]) -> Any:
    """The object that a record names, or its ``v``."""
    made = value.get("object")
    return value.get("v") if made is None else OBJECTS[made]()


def raising(value: dict[str, Any]) -> None:
    """Raise what a record names."""
    if "raises" in value:
        raise EXCEPTIONS[value["raises"]]()


def key(value: dict[str, Any]) -> Any:
    """A key: the object, for records that name one."""
    raising(value)
    return odd(value) if "p" in value else value["k"]


def time(value: dict[str, Any]) -> Any:
    """A timestamp: the object, for records that name one."""
    raising(value)
    return odd(value) if "p" in value else value["t"]


def mapped(value: dict[str, Any]) -> Any:
    """A value with the object in it."""
    raising(value)
    return {"k": value["k"], "p": value.get("p"), "r": odd(value)}


def bare(value: dict[str, Any]) -> Any:
    """The object in place of a value."""
    raising(value)
    return odd(value) if "p" in value else {"k": value["k"]}


def several(value: dict[str, Any]) -> Any:
    """The object in place of a list of values."""
    raising(value)
    return odd(value) if "p" in value else [{"k": value["k"]}]


def passes(value: dict[str, Any]) -> Any:
    """The object in place of true or false."""
    raising(value)
    return odd(value) if "p" in value else True


_VALUES = ("anything", "number", "floating", "text", "plain", "packed")


class Calls(Computation):
    """Hands the object to one call of the runtime; then tells what its state has."""

    anything = ValueState()
    number = ValueState(int, default=0)
    floating = ValueState(float, default=0.0)
    text = ValueState(str, default="")
    plain = ValueState(Plain, default=Plain)
    packed = ValueState(Packed, default=Packed)
    list_of_any = ListState()
    list_of_int = ListState(int)
    map_of_any = MapState()
    map_of_int = MapState(str, int)

    def __init__(self, call: str) -> None:
        self.call = call

    def process_record(self, ctx: Any, record: Record) -> None:
        value = record.value
        raising(value)
        if "p" in value:
            self._do(ctx, odd(value))
        seen = self.number.get() + 1 if self.call != "number" else self.number.get()
        if self.call != "number":
            self.number.set(seen)
        ctx.produce(
            "results", {"k": value["k"], "p": value.get("p"), "seen": seen, "state": self._told()}
        )

    def _do(self, ctx: Any, made: Any) -> None:
        match self.call:
            case "produce":
                ctx.produce("results", {"made": made})
            case "produce bare":
                ctx.produce("results", made)
            case "produce key":
                ctx.produce("results", {"made": "key"}, key=made)
            case "produce time":
                ctx.produce("results", {"made": "time"}, timestamp=made)
            case "produce stream":
                ctx.produce(made, {"made": "stream"})
            case "count":
                ctx.count("things", made)
            case "count name":
                ctx.count(made)
            case "timer tag":
                ctx.set_timer(made, 1_767_258_030_000_000)
            case "timer time":
                ctx.set_timer("tag", made)
            case "timer domain":
                ctx.set_timer("tag", 1_767_258_030_000_000, made)
            case "cancel timer":
                ctx.cancel_timer(made)
            case "list_of_any" | "list_of_int":
                getattr(self, self.call).append(made)
            case "map_of_any" | "map_of_int":
                getattr(self, self.call)["a"] = made
            case "map key":
                self.map_of_any[made] = 1
            case "map look":
                assert self.map_of_any.get(made, 7) is not None
            case state:
                getattr(self, state).set(made)

    def _told(self) -> str:
        """The types and values that the state has, as text that tells 1 from 1.0 and True."""
        name = "map_of_any" if self.call == "map key" else self.call
        if name.startswith("list_of"):
            return told(list(getattr(self, name)))
        if name.startswith("map_of"):
            return told(sorted(getattr(self, name).items(), key=repr))
        return told(getattr(self, name).get()) if name in _VALUES else ""

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        ctx.produce("results", {"k": ctx.key, "timer": timer.tag})


def told(found: Any) -> str:
    """A value as text that is the same for equal values of the same types."""
    if isinstance(found, (set, frozenset)):
        return f"{type(found).__name__}({sorted(map(told, found))})"
    if isinstance(found, (list, tuple)):
        return f"{type(found).__name__}({[told(each) for each in found]})"
    if isinstance(found, dict):
        return f"{type(found).__name__}({[(told(k), told(v)) for k, v in found.items()]})"
    return f"{type(found).__name__} {str(found)[:100]!a}"


class Twice(Computation):
    """The object again for the record that follows: what state gave back then must be what it was
    given."""

    kept = ValueState()

    def process_record(self, ctx: Any, record: Record) -> None:
        before = told(self.kept.get())
        if "p" in record.value:
            self.kept.set(odd(record.value))
        ctx.produce(
            "results", {"k": record.value["k"], "p": record.value.get("p"), "before": before}
        )


class Changing(Computation):
    """Changes its record's value in place before it fails or passes it on."""

    def process_record(self, ctx: Any, record: Record) -> None:
        record.value["n"] = record.value["n"] * 10
        raising(record.value)
        ctx.produce("results", record.value)
        record.value["n"] = -1


class Batches(Computation):
    """Takes the records of a key together."""

    def process_batch(self, ctx: Any, records: Any) -> None:
        for record in records:
            raising(record.value)
            ctx.produce(
                "results",
                {"k": ctx.key, "p": record.value.get("p"), "r": odd(record.value)},
                timestamp=record.timestamp,
            )


class OfWindow(Computation):
    """Takes the records of a window."""

    def process_window(self, ctx: Any, key: Any, window: Any, records: Any) -> None:
        for record in records:
            raising(record.value)
        ctx.produce(
            "results",
            {
                "k": key,
                "n": len(records),
                "r": [odd(record.value) for record in records if "p" in record.value],
            },
        )


class AtTimer(Computation):
    """Fails, or hands the object over, when its timer fires."""

    held = ValueState(dict)

    def process_record(self, ctx: Any, record: Record) -> None:
        self.held.set(copy.deepcopy(record.value))
        ctx.set_timer("due", record.timestamp + 10_000_000, Domain.EVENT)

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        value = self.held.get()
        raising(value)
        ctx.produce("results", {"k": ctx.key, "p": value.get("p"), "r": odd(value)})


class Failing(Aggregator[Any]):
    """Raises what its argument names, or hands that object back, in one of its methods."""

    def __init__(self, at: str, slot: str) -> None:
        self.at = at
        self.slot = slot

    def _fail(self, name: str) -> Any:
        if self.slot == "raises":
            raise EXCEPTIONS[name]()
        return OBJECTS[name]()

    def create(self) -> Any:
        return []

    def add(self, acc: Any, value: Any, timestamp: int) -> Any:
        if self.at == "add" and value is not None:
            return self._fail(value)
        return [*acc, value] if isinstance(acc, list) else acc

    def merge(self, acc: Any, other: Any) -> Any:
        return [*acc, *other]

    def result(self, acc: Any) -> Any:
        named = [name for name in acc if name is not None] if isinstance(acc, list) else []
        if self.at == "result" and named:
            return self._fail(named[0])
        return len(acc) if isinstance(acc, list) else told(acc)


class Event(msgspec.Struct, omit_defaults=True):
    """A record of the sweep whose ``v`` is a float."""

    k: str
    t: int
    v: float
    n: int = 0
    p: str | None = None
