"""The code of the pipelines that the search draws. What a callback does to a record, the record
says itself.

A record may have ``do``: a list of orders, each a list of a word and its arguments. So one class
meets every sequence of sets, moves, cancels and failures, and a script that shrinks still makes
sense. Every value that is produced has ``k``, ``u`` and ``n``, so that whatever comes behind can
take its key and its number from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from millwheel.api import Computation, ListState, MapState, ValueState
from millwheel.core.model.records import Domain, Record, Timer
from millwheel.core.windows.panes import as_retraction
from millwheel.core.windows.windows import Window
from millwheel.errors import RecordError

_MOST_ROUNDS = 3
IMPOSSIBLE = "a timer fires that nobody has set, or that was cancelled"
"""A dead letter with this is a failure however free the results are."""


class Hit(msgspec.Struct):
    """The records of a stream with a ``schema``."""

    at: int
    k: str
    u: int = 0
    n: int = 1
    id: str = ""
    do: list[list[Any]] = []


def common(value: Any) -> dict[str, Any]:
    """The fields that every value has."""
    if isinstance(value, Hit):
        return {"k": value.k, "u": value.u, "n": value.n}
    given = value if isinstance(value, dict) else {}
    n = given.get("n", 1)
    return {"k": given.get("k", "-"), "u": given.get("u", 0), "n": n if type(n) is int else 1}


def _orders(value: Any) -> Sequence[Sequence[Any]]:
    if isinstance(value, Hit):
        return value.do
    return value.get("do") or () if isinstance(value, dict) else ()


class Orders(Computation):
    """Does what its records and timers order, and tells what it remembers after each. Its results
    depend on the order of the records of a key, and on which timers fire between them."""

    total = ValueState(int, default=0)
    items = ListState(int)
    entries = MapState(int)
    rounds = ValueState(int, default=0)
    set_for = MapState(int)
    """What is set and has not fired, by domain and tag."""

    def __init__(self, out: str = "", past: bool = False, clock: bool = True) -> None:
        """``past``: timers may be due at once; ``clock``: there may be timers of the wall clock."""
        self.out = out
        self.past = past
        self.clock = clock

    def process_record(self, ctx: Any, record: Record) -> None:
        """Do the orders of the record, and tell."""
        fields = common(record.value)
        for order in _orders(record.value):
            self._do(ctx, order, record.timestamp, fields)
        ctx.count("seen")
        self._tell(ctx, fields, "record", record.timestamp)

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        """Tell; what else is done, the tag says: ``again`` sets itself, ``kill`` cancels another,
        ``wipe`` clears."""
        domain = timer.domain
        if f"{domain.value} {timer.tag}" not in self.set_for:
            raise RuntimeError(IMPOSSIBLE)
        self._forget(timer.tag, domain)
        if timer.tag == "again" and self.rounds.get() < _MOST_ROUNDS:
            self.rounds.set(self.rounds.get() + 1)
            self._set_at(ctx, "again", timer.at + 5_000_000, domain)
        if timer.tag == "kill":
            self._cancel(ctx, "a", domain)
        if timer.tag == "move":
            self._set_at(ctx, "b", timer.at + 20_000_000, domain)
        if timer.tag == "wipe":
            self.total.clear()
            self.items.clear()
        if timer.tag == "fail":
            raise ValueError("a timer that fails")
        self._tell(ctx, {"k": str(ctx.key), "u": 0, "n": 1}, timer.tag, timer.at)

    def _tell(self, ctx: Any, fields: dict[str, Any], why: str, at: int) -> None:
        if self.out:
            entries = sorted(self.entries.items())
            ctx.produce(
                self.out,
                {
                    **fields,
                    "why": why,
                    "t": at,
                    "total": self.total.get(),
                    "items": [*self.items],
                    "entries": entries,
                    **self._more(),
                },
            )

    def _more(self) -> dict[str, Any]:
        """What else is remembered."""
        return {}

    def _do(self, ctx: Any, order: Sequence[Any], at: int, fields: dict[str, Any]) -> None:
        word, *rest = order
        if word == "add":
            self.total.set(self.total.get() + fields["n"])
        elif word == "append":
            self.items.append(fields["n"])
        elif word == "put":
            self.entries[rest[0]] = fields["n"]
        elif word == "delete":
            if rest[0] in self.entries:
                del self.entries[rest[0]]
        elif word == "clear":
            self.total.clear()
            self.items.clear()
            self.entries.clear()
        elif word == "timer":
            self._set(ctx, *rest, at)
        elif word == "cancel":
            self._cancel(ctx, rest[0], Domain(rest[1]))
        elif word == "at":
            tag, due = rest
            self._set_at(ctx, tag, due if self.past else max(due, ctx.watermark), Domain.EVENT)
        elif word == "raise":
            raise ValueError("a record that fails")
        elif word == "later" and self.out:
            ctx.produce(self.out, {**fields, "why": "later"}, timestamp=at + rest[0])

    def _set(self, ctx: Any, tag: str, after: int, domain: str, at: int) -> None:
        if domain == "event":
            self._set_at(
                ctx, tag, at + after if self.past else max(at + after, ctx.watermark), Domain.EVENT
            )
        elif self.clock:
            self._set_at(ctx, tag, ctx.now + max(after, 0), Domain.PROCESSING)

    def _set_at(self, ctx: Any, tag: str, at: int, domain: Domain) -> None:
        ctx.set_timer(tag, at, domain)
        self.set_for[f"{domain.value} {tag}"] = 1

    def _cancel(self, ctx: Any, tag: str, domain: Domain) -> None:
        ctx.cancel_timer(tag, domain)
        self._forget(tag, domain)

    def _forget(self, tag: str, domain: Domain) -> None:
        if f"{domain.value} {tag}" in self.set_for:
            del self.set_for[f"{domain.value} {tag}"]


class Brief(Orders):
    """Remembers for ten seconds of event time."""

    total = ValueState(int, default=0, ttl="10s")
    items = ListState(int, ttl="10s")
    entries = MapState(int, ttl="10s")


class Mixed(Orders):
    """Some of what it remembers has a time to live."""

    items = ListState(int, ttl="30s")
    entries = MapState(int, ttl="5s")


MARKS: dict[str, list[int]] = {}


class Owning(Orders):
    """Changes what it was given, and what it has handed over; and remembers values of many
    types."""

    kinds = ValueState(set[int], default=set)
    pair = ValueState(tuple[int, ...], default=())
    mean = ValueState(float, default=0.0)
    marks = ValueState(dict[str, list[int]], default=lambda: MARKS)

    def process_record(self, ctx: Any, record: Record) -> None:
        """The orders of the record, after it was changed."""
        if any(order[0] == "change" for order in _orders(record.value)):
            _change(record.value)
        super().process_record(ctx, record)

    def _do(self, ctx: Any, order: Sequence[Any], at: int, fields: dict[str, Any]) -> None:
        if order[0] == "twice" and self.out:
            value = {**fields, "why": "twice", "more": [1]}
            ctx.produce(self.out, value)
            value["more"].append(2)
            value["k"], value["u"] = "a", 1 - value["u"] if type(value["u"]) is int else 0
            ctx.produce(self.out, value)
            value["k"], value["u"], value["n"] = "changed", 7, 99
        elif order[0] == "keep":
            self._keep(fields["n"])
        else:
            super()._do(ctx, order, at, fields)

    def _keep(self, n: int) -> None:
        self.kinds.get().add(n)
        pair = (*self.pair.get(), n)
        self.pair.set(pair[-3:])
        self.mean.set(n)
        value = {"a": [n]}
        self.marks.get().setdefault("b", []).append(n)
        if n % 2:
            self.marks.set(value)
            value["a"].append(100)

    def _more(self) -> dict[str, Any]:
        pair, kinds = self.pair.get(), self.kinds.get()
        types = [type(pair).__name__, type(kinds).__name__, repr(self.mean.get())]
        return {
            "kinds": sorted(kinds),
            "pair": pair,
            "types": types,
            "marks": repr(self.marks.get()),
        }


def _change(value: Any) -> None:
    """As a callback does that takes its record for its own."""
    n = common(value)["n"] + 10
    if isinstance(value, Hit):
        value.n = n
    else:
        value["n"] = n
    orders: Any = _orders(value)
    orders.append(["append"])


class Free(Computation):
    """Gives the same results in whatever order its records come: what it produces for one depends
    on nothing but that record, and each of its timers has a tag of its own and is never moved."""

    total = ValueState(int, default=0)
    takes_retractions = True

    def __init__(self, out: str = "", wait: int = 0) -> None:
        self.out = out
        self.wait = wait

    def process_record(self, ctx: Any, record: Record) -> None:
        """Pass the record on, at once or by a timer."""
        value = record.value
        back = as_retraction(value)
        if back is not None:
            value = back.value
        fields = common(value)
        if any(order[0] == "raise" for order in _orders(value)):
            raise ValueError("a record that fails")
        self.total.set(self.total.get() + (fields["n"] if back is None else -fields["n"]))
        if not self.out or back is not None:
            return
        if self.wait:
            tag = msgspec.json.encode(
                [fields["k"], fields["u"], fields["n"], record.timestamp]
            ).decode()
            ctx.set_timer(tag, record.timestamp + self.wait)
        else:
            ctx.produce(self.out, {**fields, "by": "free"})

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        """What the tag says."""
        k, u, n, _ = msgspec.json.decode(timer.tag)
        ctx.produce(self.out, {"k": k, "u": u, "n": n, "by": "timer"})


class _As:
    """The context of a call as one of its records sees it."""

    def __init__(self, ctx: Any, at: int) -> None:
        self._ctx = ctx
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def produce(
        self, stream: str, value: Any, timestamp: int | None = None, key: Any = None
    ) -> None:
        """At the time of the record, or later."""
        if timestamp is not None and timestamp < self._at:
            raise RecordError(
                f"produce to {stream!r}: a production may not be earlier than its cause"
            )
        self._ctx.produce(stream, value, self._at if timestamp is None else timestamp, key)


class _Together(Computation):
    """Takes the records of a key together, and does for each what it would do for it alone."""

    def process_batch(self, ctx: Any, records: Sequence[Record]) -> None:
        """All of them, in their order."""
        for record in records:
            self.process_record(_As(ctx, record.timestamp), record)


class OrdersTogether(_Together, Orders): ...


class BriefTogether(_Together, Brief): ...


class MixedTogether(_Together, Mixed): ...


class FreeTogether(_Together, Free): ...


class Spans(Computation):
    """Tells each window's records. With ``sort`` in an order that does not depend on how they
    came."""

    panes = ValueState(int, default=0)

    def __init__(self, out: str, sort: bool = False) -> None:
        self.out = out
        self.sort = sort

    def process_window(self, ctx: Any, key: Any, window: Window, records: Sequence[Record]) -> None:
        """One pane."""
        found = [[common(record.value)["n"], record.timestamp, record.stream] for record in records]
        if any(order[0] == "raise" for record in records for order in _orders(record.value)):
            raise ValueError("a window that fails")
        self.panes.set(self.panes.get() + 1)
        ctx.produce(
            self.out,
            {
                "k": str(key),
                "u": 0,
                "n": sum(each[0] for each in found),
                "window_start": window.start,
                "window_end": window.end,
                "records": sorted(found) if self.sort else found,
                "index": ctx.pane.index,
                "timing": str(ctx.pane.timing),
                "last": ctx.pane.is_last,
            },
        )


def by_k(value: Any) -> str:
    """A key function."""
    fields = common(value)
    if fields["k"] == "bad":
        raise ValueError("no key")
    return str(fields["k"])


def stamp(value: Any) -> int:
    """A timestamp function."""
    found: int = value["at"]
    return found


def doubled(value: Any) -> list[Any]:
    """A flat_map: two values, or none."""
    fields = common(value)
    return [] if fields["n"] == 3 else [fields, {**fields, "n": fields["n"] + 10}]
