"""Deliberate mistakes about deliveries, and firings of joins, of which a bundle takes a part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakKeyDictionary

from msgspec import structs

from millwheel.core.pipeline.joins import WindowSide
from millwheel.engine.workers.delivery import inbox
from millwheel.engine.workers.delivery.inbox import Arrival, Inbox, parted
from millwheel.engine.workers.operators.record_joins import Firing, Joined
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=2, workload="paired", first=6)
def a_part_answers_for_its_delivery() -> Context:
    """The whole delivery is acked with its first part: what waits is lost with its worker."""
    right = inbox.first_of

    def wrong(arrival: Arrival, count: int) -> Arrival:
        return replace(right(arrival, count), reply_to=arrival.reply_to)

    return replaced(inbox, "first_of", wrong)


@mistake(within=1, workload="paired", faults="none", first=2)
def what_is_put_back_is_forgotten() -> Context:
    """Only what a bundle takes of its input is ever applied."""
    return replaced(Inbox, "put_back", lambda self, arrivals, count: parted(arrivals, count)[0])


@mistake(within=1, workload="paired", faults="none", first=2)
def what_is_put_back_waits_behind_all_else() -> Context:
    """It comes again behind later deliveries of its channel."""

    def wrong(self: Inbox, arrivals: list[Arrival], count: int) -> list[Arrival]:
        firsts, rest = parted(arrivals, count)
        for arrival in rest:
            self.push(arrival)
        return firsts

    return replaced(Inbox, "put_back", wrong)


@mistake(within=2, workload="paired-windows", first=1009)
def records_of_waiting_firings_stay_behind() -> Context:
    """The next owner of a key finds which of its firings wait, and not their records."""
    right_down, right_up = Joined.encode_waiting, Joined.decode_waiting
    written: WeakKeyDictionary[Joined, set[bytes]] = WeakKeyDictionary()

    def encode_waiting(self: Joined, number: int, value: Firing) -> bytes:
        data = right_down(self, number, value)
        written.setdefault(self, set()).add(data)
        return data

    def decode_waiting(self: Joined, number: int, data: bytes) -> Firing:
        firing = right_up(self, number, data)
        if data in written.get(self, ()):
            return firing
        return structs.replace(firing, sides=[WindowSide((), (), ()) for _ in firing.sides])

    @contextmanager
    def wrong() -> Iterator[None]:
        with (
            replaced(Joined, "encode_waiting", encode_waiting),
            replaced(Joined, "decode_waiting", decode_waiting),
        ):
            yield

    return wrong()
