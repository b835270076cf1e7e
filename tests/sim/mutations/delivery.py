"""Deliberate mistakes in delivery and commits, also of computations that run in the shards of
others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.bundle import Bundle, Outputs
from millwheel.engine.workers.delivery import inbox
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.effects import Ack
from millwheel.engine.workers.loop.commits import CommitGroups
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.loop.shard_handle import Served
from millwheel.engine.workers.loop.traffic import Traffic
from millwheel.engine.workers.operators import callbacks, chains
from millwheel.engine.workers.operators.chains import ChainLink
from millwheel.engine.workers.shard import shard
from millwheel.engine.workers.shard.admission import Admission
from millwheel.engine.workers.shard.productions import ProductionBuilding
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, first=4)
def ack_before_commit() -> Context:
    """Deliveries are acked when they arrive."""
    right = Traffic.delivery

    def wrong(self: Traffic, event: ev.DeliveryCame) -> None:
        self._out.acks.append(
            Ack(event.reply_to, event.channel, event.target, event.epoch, event.index, 0)
        )
        right(self, event)

    return replaced(Traffic, "delivery", wrong)


@mistake(within=10)
def lanes_of_a_shard_answered_as_one() -> Context:
    """Of all that a shard applied in a group of commits, only the last delivery is acked, whatever
    lane it came by."""
    right = Traffic.answer

    def wrong(self: Traffic, applied: Any, *others: Any) -> None:
        right(self, {each[0]: each for each in applied}.values(), *others)

    return replaced(Traffic, "answer", wrong)


@mistake(within=10, first=4)
def productions_sent_before_commit() -> Context:
    """Productions leave when they are made."""
    return replaced(Traffic, "_may_have_early", lambda self, target: True)


@mistake(within=60, faults="kill kill-in-a-call power")
def commits_written_in_any_order() -> Context:
    """A commit may be written before that of another shard of the worker whose productions it has
    applied."""
    right = CommitGroups.submit
    calls = itertools.count()

    def wrong(self: CommitGroups, shards: Any, now_us: int, at_once: bool = False) -> Any:
        return right(self, shards[next(calls) % 2 :: 2], now_us, at_once)

    return replaced(CommitGroups, "submit", wrong)


@mistake(within=20)
def a_report_forgets_what_happened_last() -> Context:
    """What happens to a shard that has just reported is not reported unless something else happens
    to it."""
    right = Served.mark_changed

    def wrong(self: Served) -> None:
        news = self.last.news
        right(self)
        self.last.news = news

    return replaced(Served, "mark_changed", wrong)


@mistake(within=10)
def quiet_shards_forget_when_to_wake() -> Context:
    """A shard that had nothing to do is not looked at when its time comes, only when something
    happens to it."""
    right = WorkerRuntime._runnable

    def wrong(self: WorkerRuntime, served: Any, now_us: int, patient: bool) -> bool:
        runs = right(self, served, now_us, patient)
        served.wakes_at_us = MAX_TIME
        return runs

    return replaced(WorkerRuntime, "_runnable", wrong)


@mistake(within=10)
def room_wakes_nobody() -> Context:
    """A shard without room for more is not asked again once a commit of its own is durable, or
    consumers in its worker have applied what it sent."""
    right = WorkerRuntime._complete

    def wrong(self: WorkerRuntime, group: Any, now_us: int) -> None:
        changed = {name for name, each in self._served.items() if each.changed}
        right(self, group, now_us)
        for name, each in self._served.items():
            each.changed = name in changed

    return replaced(WorkerRuntime, "_complete", wrong)


@mistake(within=20)
def broadcasts_wake_nobody() -> Context:
    """A shard that hears of a higher watermark is not asked whether something is due."""
    right = Served.follow

    def wrong(self: Served, watermarks: Any, graph: Any, now_us: int) -> bool:
        changed = self.changed
        rose = right(self, watermarks, graph, now_us)
        self.changed = changed
        return rose

    return replaced(Served, "follow", wrong)


@mistake(within=20)
def applied_records_not_cut_off() -> Context:
    """A restarted sender's records are taken again."""
    return replaced(Batch, "after", lambda self, seq: self)


@mistake(within=30, faults="cut loss failing one-way partition", workload="numbers", first=23)
def gaps_accepted() -> Context:
    """A delivery is taken although an earlier one is missing."""
    right = inbox.Inbox.offer

    def wrong(
        self: inbox.Inbox, channel: str, epoch: int, index: int, batch: Any, reply_to: object
    ) -> inbox.DeliveryOutcome:
        known = self._channels.setdefault(channel, inbox._Channel(accepted=0))
        if epoch >= known.epoch:
            known.epoch, known.next_index = epoch, index
        return right(self, channel, epoch, index, batch, reply_to)

    return replaced(inbox.Inbox, "offer", wrong)


@mistake(within=60)
def pending_productions_forgotten() -> Context:
    """Recovery does not send again what was checkpointed."""
    return replaced(shard, "read_productions", lambda store, fanout: [])


@mistake(within=60, first=33)
def unnumbered_productions_not_settled() -> Context:
    """A weak production that was checkpointed is done with when it is acked, although a crash sends
    it again."""
    right = Outbox._finish

    def wrong(self: Outbox, chunk: Any) -> None:
        right(self, chunk)
        self.unsettled.clear()

    return replaced(Outbox, "_finish", wrong)


@mistake(within=10, faults="none", first=11013)
def weak_ids_without_their_maker() -> Context:
    """The id of a weak production says of what it was made, but not by whom."""
    right, found = ProductionBuilding.__init__, callbacks.record_causes  # type: ignore[attr-defined]

    def wrong(self: ProductionBuilding, *given: Any) -> None:
        right(self, *given)
        self._maker = b""

    def without_stream(batch: Batch, channel: str) -> list[Any]:
        return list(found(batch, channel) if batch.seqs else batch.ids or [])

    @contextmanager
    def both() -> Iterator[None]:
        with (
            replaced(ProductionBuilding, "__init__", wrong),
            replaced(callbacks, "record_causes", without_stream),
        ):
            yield

    return both()


@mistake(within=10, workload="accounts")
def back_pressure_stops_circles() -> Context:
    """A shard with too much on its way does not take what follows from it either."""
    return replaced(Admission, "_circles", lambda self, channel: False)


@mistake(within=2, workload="chains", faults="kill kill-again power")
def what_a_chain_makes_is_in_the_next_commit() -> Context:
    """Input is acked with a commit in which what a chained computation made of it is missing: a new
    owner has neither."""
    right = chains._run_link
    waiting: dict[int, Outputs] = {}

    def wrong(link: ChainLink, arrivals: list[Arrival], bundle: Bundle) -> None:
        def later(self: Bundle, part: Bundle, node: str = "", taken: str = "") -> None:
            made = part.outputs
            part.outputs = waiting.pop(id(link), Outputs())
            waiting[id(link)] = made
            add(self, part, node, taken)

        add = Bundle.add
        with replaced(Bundle, "add", later):
            right(link, arrivals, bundle)

    return replaced(chains, "_run_link", wrong)


@mistake(within=1, workload="chains", faults="none")
def letters_of_chained_computations_are_dropped() -> Context:
    """What the second computation of a chain could not use is counted, and not told."""
    right = Bundle.add

    def wrong(self: Bundle, part: Bundle, node: str = "", taken: str = "") -> None:
        part.outputs.streams.pop(DEAD_LETTERS, None)
        right(self, part, node, taken)

    return replaced(Bundle, "add", wrong)
