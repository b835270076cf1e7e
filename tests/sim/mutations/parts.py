"""Deliberate mistakes about deliveries of which a bundle takes a part."""

from __future__ import annotations

from dataclasses import replace

from millwheel.engine.workers.delivery import inbox
from millwheel.engine.workers.delivery.inbox import Arrival, Inbox, parted
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
