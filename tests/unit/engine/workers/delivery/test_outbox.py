from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.delivery.inbox import Arrival, DeliveryOutcome, Inbox
from millwheel.engine.workers.delivery.outbox import (
    Outbox,
    OutputChunk,
    Send,
    joined_epoch,
    split_epoch,
)
from millwheel.errors import InvariantError

TARGETS = ("t-0", "t-1")


def batch(seqs: list[int], keys: list[int] | None = None) -> Batch:
    return Batch("s", seqs, [100 + seq for seq in seqs], keys or [0] * len(seqs), list(seqs))


def chunk(number: int, *seqs: int, channel: str = "c", **more: Any) -> OutputChunk:
    return OutputChunk(number, channel, [("t", batch(list(seqs)))], 100 + seqs[0], **more)


def all_to_first(node: str, given: Batch) -> list[tuple[str, Batch]]:
    return [("t-0", given)]


def by_key(node: str, given: Batch) -> list[tuple[str, Batch]]:
    positions: dict[str, list[int]] = defaultdict(list)
    for position, key in enumerate(given.keys):
        positions[TARGETS[key % 2]].append(position)
    return [(target, given.pick(members)) for target, members in sorted(positions.items())]


def nobody(node: str, given: Batch) -> list[tuple[str, Batch]]:
    return []


def released(outbox: Outbox, *chunks: OutputChunk) -> None:
    for one in chunks:
        outbox.add(one)
        outbox.release(one, all_to_first)


def positions(sends: list[Send]) -> list[tuple[int, list[int]]]:
    return [(send.index, send.batch.seqs) for send in sends]


def test_deliveries_of_a_lane_are_numbered_from_zero_under_the_tokens_epoch() -> None:
    outbox = Outbox(3, 100)
    released(outbox, chunk(1, 1, 2), chunk(2, 3))
    sends = list(outbox.sends())
    assert positions(sends) == [(0, [1, 2]), (1, [3])]
    assert {send.epoch for send in sends} == {joined_epoch(3, 0)}
    assert list(outbox.sends()) == []


def test_a_chunk_is_routed_once() -> None:
    outbox = Outbox(3, 100)
    one = chunk(1, 1, 2)
    released(outbox, one)
    with pytest.raises(InvariantError, match="c#1 is routed already"):
        outbox.release(one, all_to_first)


def test_an_ack_of_what_was_never_sent_is_refused() -> None:
    outbox = Outbox(3, 2)
    released(outbox, chunk(1, 1, 2), chunk(2, 3))
    [sent] = outbox.sends()
    with pytest.raises(InvariantError, match="t-0 acks index 1 of c; the next to be sent is 1"):
        outbox.ack("c", "t-0", sent.epoch, 1)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_every_epoch_of_an_owner_is_older_than_the_first_of_the_next(
    token: int, restarts: int
) -> None:
    assert joined_epoch(token, restarts) < joined_epoch(token + 1, 0)
    assert split_epoch(joined_epoch(token, restarts)) == (token, restarts)


def test_however_often_an_owner_restarted_its_lanes_its_successors_deliveries_are_taken() -> None:
    inbox = Inbox({})
    worn, fresh = Outbox(5, 100), Outbox(6, 100)
    worn._epoch += 2**62  # a lane whose target has no owner, for billions of years
    for outbox, number in ((worn, 1), (fresh, 2)):
        released(outbox, chunk(number, number))
        outbox.restart("c", "t-0")
        (send,) = outbox.sends()
        assert (
            inbox.offer(send.channel, send.epoch, send.index, send.batch, None)
            is DeliveryOutcome.TAKEN
        )


def test_nothing_is_sent_before_it_is_released() -> None:
    outbox = Outbox(1, 100)
    one = chunk(1, 1)
    outbox.add(one)
    assert list(outbox.sends()) == []
    assert outbox.min_timestamp() == 101
    assert "not yet durable" in outbox.holder()


def test_what_is_held_goes_only_to_targets_that_may_have_it_early() -> None:
    outbox = Outbox(1, 100)
    one, two = chunk(1, 1), chunk(2, 2)
    one.held = two.held = True
    released(outbox, one, two)
    assert list(outbox.sends()) == []
    assert positions(list(outbox.sends(lambda target: target == "t-0"))) == [(0, [1]), (1, [2])]
    outbox.restart("c", "t-0")
    assert list(outbox.sends()) == []
    one.held = False
    assert positions(list(outbox.sends())) == [(0, [1])]
    two.held = False
    assert positions(list(outbox.sends())) == [(1, [2])]


def test_a_chunk_is_done_when_all_its_parts_are_acked() -> None:
    outbox = Outbox(1, 100)
    one = OutputChunk(1, "c", [("t", batch([1, 2], [0, 1]))], 101)
    outbox.add(one)
    outbox.release(one, by_key)
    sends = list(outbox.sends())
    assert [send.target for send in sends] == ["t-0", "t-1"]
    outbox.ack("c", "t-0", sends[0].epoch, 0)
    assert not outbox.take_done()
    assert outbox.holder() == "production c#1, not yet applied by t-1"
    outbox.ack("c", "t-1", sends[1].epoch, 0)
    assert outbox.take_done() == [one]
    assert one.finished
    assert (outbox.min_timestamp(), outbox.pending_weight, bool(outbox.open), outbox.holder()) == (
        MAX_TIME,
        0,
        False,
        "",
    )


def test_a_chunk_that_nobody_consumes_is_done_at_once() -> None:
    outbox = Outbox(1, 100)
    one = chunk(1, 1)
    outbox.add(one)
    outbox.release(one, nobody)
    assert outbox.take_done() == [one]


def test_an_ack_covers_everything_up_to_its_index() -> None:
    outbox = Outbox(1, 100)
    chunks = [chunk(number, number) for number in (1, 2, 3)]
    released(outbox, *chunks)
    [first, *_] = list(outbox.sends())
    outbox.ack("c", "t-0", first.epoch, 1)
    assert outbox.take_done() == chunks[:2]


def test_acks_of_another_epoch_or_lane_change_nothing() -> None:
    outbox = Outbox(1, 100)
    released(outbox, chunk(1, 1))
    [send] = outbox.sends()
    outbox.ack("c", "t-0", send.epoch - 1, 9)
    outbox.ack("c", "t-1", send.epoch, 9)
    outbox.ack("d", "t-0", send.epoch, 9)
    outbox.restart("c", "t-0")
    outbox.ack("c", "t-0", send.epoch, 9)
    assert outbox.open


def test_a_lane_sends_no_further_ahead_than_its_window() -> None:
    outbox = Outbox(1, 3)
    released(outbox, chunk(1, 1, 2), chunk(2, 3, 4), chunk(3, 5), chunk(4, 6))
    first = list(outbox.sends())
    assert positions(first) == [(0, [1, 2]), (1, [3, 4])]
    outbox.ack("c", "t-0", first[0].epoch, 0)
    assert positions(list(outbox.sends())) == [(2, [5])]


def test_a_part_larger_than_the_window_is_sent_alone() -> None:
    outbox = Outbox(1, 1)
    released(outbox, chunk(1, 1, 2, 3), chunk(2, 4))
    assert positions(list(outbox.sends())) == [(0, [1, 2, 3])]


def test_a_restart_begins_a_new_epoch_at_the_first_unacked_part() -> None:
    outbox = Outbox(1, 100)
    released(outbox, chunk(1, 1), chunk(2, 2), chunk(3, 3))
    first = list(outbox.sends())
    outbox.ack("c", "t-0", first[0].epoch, 0)
    outbox.restart("c", "t-0")
    again = list(outbox.sends())
    assert positions(again) == [(0, [2]), (1, [3])]
    assert again[0].epoch > first[0].epoch


def test_a_refusal_of_an_older_epoch_restarts_nothing() -> None:
    outbox = Outbox(1, 100)
    released(outbox, chunk(1, 1))
    [send] = outbox.sends()
    outbox.restart("c", "t-0", send.epoch)
    list(outbox.sends())
    outbox.restart("c", "t-0", send.epoch)
    assert list(outbox.sends()) == []


def test_only_the_lanes_that_are_wanted_restart() -> None:
    outbox = Outbox(1, 100)
    one = OutputChunk(1, "c", [("t", batch([1, 2], [0, 1]))], 101)
    outbox.add(one)
    outbox.release(one, by_key)
    list(outbox.sends())
    outbox.restart_all({"t-1"}.__contains__)
    assert [send.target for send in outbox.sends()] == ["t-1"]
    assert outbox.lanes_to({"t-1"}) == [("c", "t-1")]
    assert outbox.sends_on("c")
    assert not outbox.sends_on("d")


def test_epochs_of_a_new_owner_are_higher_than_all_earlier_ones() -> None:
    old, new = Outbox(4, 100), Outbox(5, 100)
    released(old, chunk(1, 1))
    for _ in range(50):
        old.restart("c", "t-0")
    released(new, chunk(1, 1))
    assert next(iter(new.sends())).epoch > list(old.sends())[-1].epoch


# --- joined with the inbox ------------------------------------------------------------------------


class Link:
    """One channel to two consumer shards over a network that loses, repeats and delays, while both
    ends restart.

    A production stays in ``stored`` until it is acked, and a mark in ``marks`` is what a consumer
    applied: these two survive. Everything else may vanish at any moment."""

    def __init__(self, rng: random.Random, chunks: list[OutputChunk]) -> None:
        self.rng = rng
        self.stored = {one.number: one for one in chunks}
        self.applied: dict[str, list[int]] = {target: [] for target in TARGETS}
        self.marks: dict[str, dict[str, int]] = {target: {} for target in TARGETS}
        self.inboxes = {target: Inbox({}) for target in TARGETS}
        self.network: deque[Any] = deque()
        self.token = 0
        self.restart_sender()

    def restart_sender(self) -> None:
        self.token += 1
        self.outbox = Outbox(self.token, self.rng.choice([1, 3, 100]))
        for number in sorted(self.stored):
            old = self.stored[number]
            fresh = OutputChunk(number, "c", old.batches, old.min_timestamp)
            self.outbox.add(fresh)
            self.outbox.release(fresh, by_key)

    def restart_consumer(self, target: str) -> None:
        self.inboxes[target] = Inbox(self.marks[target])
        self.outbox.restart_all({target}.__contains__)

    def step(self, faults: bool) -> None:
        self.network.extend(self.outbox.sends())
        if faults:
            self.fault()
        if self.network:
            self.arrive(self.network.popleft())
        for target, inbox in self.inboxes.items():
            if inbox.waiting and self.rng.random() < 0.7:
                self.apply(target, inbox.take(self.rng.choice([1, 4])))
        for done in self.outbox.take_done():
            self.stored.pop(done.number, None)

    def fault(self) -> None:
        kind = self.rng.random()
        if kind < 0.15 and self.network:
            del self.network[self.rng.randrange(len(self.network))]
        elif kind < 0.3 and self.network:
            self.network.append(self.rng.choice(self.network))
        elif kind < 0.45:
            self.rng.shuffle(self.network)
        elif kind < 0.5:
            self.restart_sender()
        elif kind < 0.6:
            self.restart_consumer(self.rng.choice(TARGETS))

    def arrive(self, message: Any) -> None:
        if isinstance(message, Send):
            verdict = self.inboxes[message.target].offer(
                "c", message.epoch, message.index, message.batch, None
            )
            if verdict is DeliveryOutcome.RESTART:
                self.network.append(("restart", message.target, message.epoch))
            return
        kind, target, epoch, *index = message
        if kind == "ack":
            self.outbox.ack("c", target, epoch, *index)
        else:
            self.outbox.restart("c", target, epoch)

    def apply(self, target: str, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self.applied[target] += arrival.batch.values
            if arrival.batch.seqs:
                self.marks[target]["c"] = arrival.batch.seqs[-1]
            self.network.append(("ack", target, arrival.epoch, arrival.index))

    def drain(self) -> None:
        """No more faults: what is lost is asked for again, as a lane that is stalled would."""
        for _ in range(50):
            for _ in range(200):
                self.step(faults=False)
            if not self.stored:
                return
            self.outbox.restart_all(lambda target: True)
        raise AssertionError(f"never delivered: {sorted(self.stored)}")


@settings(max_examples=60, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=8),
)
def test_every_record_is_applied_once_and_in_order_whatever_happens(
    rng: random.Random, produced: list[list[int]]
) -> None:
    chunks, seq = [], 0
    for number, keys in enumerate(produced, 1):
        seqs = list(range(seq + 1, seq + len(keys) + 1))
        seq = seqs[-1]
        chunks.append(OutputChunk(number, "c", [("t", batch(seqs, keys))], 100 + seqs[0]))
    link = Link(rng, chunks)
    for _ in range(80):
        link.step(faults=True)
    link.drain()
    for position, target in enumerate(TARGETS):
        want = [
            seq
            for one in chunks
            for seq, key in zip(one.batches[0][1].seqs, one.batches[0][1].keys, strict=True)
            if key % 2 == position
        ]
        assert link.applied[target] == want


def test_an_unnumbered_checkpointed_production_holds_the_watermark_until_its_end_is_taken() -> None:
    outbox = Outbox(1, 100)
    weak = OutputChunk(1, "c", [("t", Batch("s", [], [107], [0], [b"v"]))], 107, stored=True)
    released(outbox, weak)
    (send,) = outbox.sends()
    outbox.ack("c", "t-0", send.epoch, send.index)
    assert outbox.min_timestamp() == 107
    assert outbox.unsettled, "the shard must run a bundle, which deletes it from its store"
    assert outbox.take_done() == [weak]
    assert (outbox.min_timestamp(), outbox.unsettled) == (MAX_TIME, [])


def test_what_a_shard_that_was_split_has_not_acked_goes_to_its_children() -> None:
    outbox = Outbox(1, 2)
    first = OutputChunk(1, "c", [("t", batch([1, 2], [0, 1]))], 101)
    second = OutputChunk(2, "c", [("t", batch([3, 4], [0, 1]))], 103)
    third = OutputChunk(3, "c", [("t", batch([5, 6], [0, 1]))], 105)
    released(outbox, first, second, third)
    sent = list(outbox.sends())
    outbox.ack("c", "t-0", sent[0].epoch, 0)

    def to_children(node: str, given: Batch) -> list[tuple[str, Batch]]:
        return [(f"{target}-child", mine) for target, mine in by_key(node, given)]

    outbox.reroute({"t-0"}, {"t-0-child", "t-1-child"}, to_children)
    found: dict[str, list[int]] = defaultdict(list)
    while sends := list(outbox.sends()):
        for send in sends:
            found[send.target] += send.batch.seqs
            outbox.ack(send.channel, send.target, send.epoch, send.index)
    assert found == {"t-0-child": [3, 5], "t-1-child": [4, 6]}
    assert outbox.take_done() == [first, second, third]


def test_acks_of_one_of_two_merged_shards_go_to_the_heir_with_the_rest_of_the_chunk() -> None:
    outbox = Outbox(1, 50)
    one = OutputChunk(1, "c", [("t", batch([1, 2, 3], [0, 1, 0]))], 101)
    outbox.add(one)
    outbox.release(one, by_key)
    sent = {send.target: send for send in outbox.sends()}
    outbox.ack("c", "t-0", sent["t-0"].epoch, sent["t-0"].index)
    outbox.reroute({"t-0", "t-1"}, {"t-2"}, lambda node, given: [("t-2", given)])
    (send,) = outbox.sends()
    assert (send.target, send.batch.seqs) == ("t-2", [1, 2, 3])
    assert not one.finished
    outbox.ack("c", "t-2", send.epoch, send.index)
    assert one.finished
