from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.records import Batch
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.delivery.inbox import UNANSWERED, Arrival, DeliveryOutcome, Inbox


def batch(*seqs: int) -> Batch:
    return Batch("s", list(seqs), [10 * seq for seq in seqs], ["k"] * len(seqs), list(seqs))


def unnumbered(*timestamps: int) -> Batch:
    return Batch("s", [], list(timestamps), ["k"] * len(timestamps), list(timestamps))


def taken(inbox: Inbox) -> list[list[int]]:
    return [arrival.batch.values for arrival in inbox.take(1_000)]


def test_deliveries_of_an_epoch_are_taken_in_order() -> None:
    inbox = Inbox({})
    assert inbox.offer("c", 5, 0, batch(1, 2), None) is DeliveryOutcome.TAKEN
    assert inbox.offer("c", 5, 1, batch(3), None) is DeliveryOutcome.TAKEN
    assert taken(inbox) == [[1, 2], [3]]


def test_a_gap_asks_for_a_restart_and_takes_nothing() -> None:
    inbox = Inbox({})
    inbox.offer("c", 5, 0, batch(1), None)
    assert inbox.offer("c", 5, 2, batch(3), None) is DeliveryOutcome.RESTART
    assert inbox.offer("c", 5, 1, batch(2), None) is DeliveryOutcome.TAKEN
    assert taken(inbox) == [[1], [2]]


def test_an_epoch_must_be_heard_from_its_beginning() -> None:
    inbox = Inbox({"c": 3})
    assert inbox.offer("c", 5, 1, batch(4), None) is DeliveryOutcome.RESTART
    inbox.offer("c", 5, 0, batch(4), None)
    assert inbox.offer("c", 6, 1, batch(5), None) is DeliveryOutcome.RESTART
    assert inbox.offer("c", 5, 1, batch(5), None) is DeliveryOutcome.TAKEN


def test_what_was_taken_or_belongs_to_an_older_epoch_is_stale() -> None:
    inbox = Inbox({})
    inbox.offer("c", 5, 0, batch(1), None)
    assert inbox.offer("c", 5, 0, batch(1), None) is DeliveryOutcome.STALE
    assert inbox.offer("c", 4, 1, batch(2), None) is DeliveryOutcome.STALE
    assert taken(inbox) == [[1]]


def test_records_applied_before_are_cut_off_however_they_are_cut_again() -> None:
    inbox = Inbox({"c": 3})
    inbox.offer("c", 5, 0, batch(1, 3, 4, 7), None)
    inbox.offer("c", 6, 0, batch(2, 3), None)
    inbox.offer("c", 6, 1, batch(4, 7, 9), None)
    assert taken(inbox) == [[4, 7], [], [9]]


def test_a_delivery_without_fresh_records_is_still_acked() -> None:
    inbox = Inbox({"c": 9})
    assert inbox.offer("c", 5, 0, batch(8, 9), "route") is DeliveryOutcome.TAKEN
    [arrival] = inbox.take(1)
    assert (arrival.epoch, arrival.index, arrival.reply_to) == (5, 0, "route")
    assert inbox.records == 0


def test_channels_know_nothing_of_each_other() -> None:
    inbox = Inbox({"a": 5})
    inbox.offer("a", 1, 0, batch(5, 6), None)
    inbox.offer("b", 1, 0, batch(5, 6), None)
    assert taken(inbox) == [[6], [5, 6]]


def test_records_without_numbers_are_never_cut() -> None:
    inbox = Inbox({"c": 9})
    inbox.offer("c", 1, 0, unnumbered(1, 2), None)
    inbox.offer("c", 2, 0, unnumbered(1, 2), None)
    assert taken(inbox) == [[1, 2], [1, 2]]


def test_arrivals_are_taken_whole_and_at_least_one() -> None:
    inbox = Inbox({})
    inbox.offer("c", 1, 0, batch(1, 2, 3), None)
    inbox.offer("c", 1, 1, batch(4), None)
    inbox.offer("c", 1, 2, batch(5, 6), None)
    assert inbox.records == 6
    assert [arrival.index for arrival in inbox.take(2)] == [0]
    assert [arrival.index for arrival in inbox.take(2)] == [1]
    assert (len(inbox.waiting), inbox.records) == (1, 2)
    assert [arrival.index for arrival in inbox.take(2)] == [2]
    assert inbox.take(2) == []


def test_waiting_records_hold_the_watermark_at_the_earliest() -> None:
    inbox = Inbox({})
    assert inbox.min_timestamp() == MAX_TIME
    inbox.offer("c", 1, 0, unnumbered(30, 20, 40), None)
    inbox.offer("d", 1, 0, unnumbered(10), None)
    assert inbox.min_timestamp() == 10
    inbox.take(3)
    assert inbox.min_timestamp() == 10
    inbox.take(3)
    assert inbox.min_timestamp() == MAX_TIME


def test_an_injection_waits_in_line_and_belongs_to_no_channel() -> None:
    inbox = Inbox({})
    inbox.push(Arrival("", 0, 0, unnumbered(1), "client", MAX_TIME))
    inbox.push(Arrival("", 0, 0, unnumbered(2), "client", MAX_TIME))
    assert inbox.records == 2
    assert taken(inbox) == [[1], [2]]


def test_some_channels_can_be_taken_while_others_wait_in_their_order() -> None:
    inbox = Inbox({})
    for number, channel in enumerate(["a", "b", "a", "b"], 1):
        inbox.offer(channel, 1, (number - 1) // 2, batch(number), None)
    assert inbox.waits_for("b".__eq__)
    assert [arrival.batch.seqs for arrival in inbox.take(1, "b".__eq__)] == [[2]]
    assert [arrival.batch.seqs for arrival in inbox.take(9, "b".__eq__)] == [[4]]
    assert not inbox.waits_for("b".__eq__)
    assert inbox.records == 2
    assert taken(inbox) == [[1], [3]]


def test_one_record_at_a_time_is_taken_and_the_delivery_answered_with_the_last() -> None:
    inbox = Inbox({})
    inbox.offer("a", 1, 0, batch(1, 2, 3), "route")
    inbox.offer("b", 1, 0, batch(1), "other")
    found = [inbox.take_one()[0] for _ in range(4)]
    assert [(each.channel, each.batch.rows().seqs) for each in found] == [
        ("a", [1]),
        ("a", [2]),
        ("a", [3]),
        ("b", [1]),
    ]
    assert [each.reply_to for each in found] == [UNANSWERED, UNANSWERED, "route", "other"]
    assert inbox.take_one() == []
    assert inbox.records == 0


@pytest.mark.parametrize(
    ("count", "firsts", "rest"),
    [
        (2, [([1, 2], UNANSWERED)], [([3], "first"), ([], "copies"), ([4, 5], "second")]),
        (3, [([1, 2, 3], "first"), ([], "copies")], [([4, 5], "second")]),
        (
            4,
            [([1, 2, 3], "first"), ([], "copies"), ([4], UNANSWERED)],
            [([5], "second")],
        ),
    ],
)
def test_what_is_put_back_waits_before_all_else(count: int, firsts: Any, rest: Any) -> None:
    """A delivery is answered with its last part, and behind those that came before it, also one of
    which nothing is new."""
    inbox = Inbox({})
    inbox.offer("a", 1, 0, batch(1, 2, 3), "first")
    inbox.offer("a", 2, 0, batch(1, 2, 3), "copies")
    inbox.offer("a", 2, 1, batch(4, 5), "second")
    arrivals = inbox.take(1_000)
    inbox.offer("d", 1, 0, batch(1), "third")
    found = inbox.put_back(arrivals, count)
    inbox.validate()
    assert [(each.batch.values, each.reply_to) for each in found] == firsts
    assert inbox.records == 6 - count
    again = inbox.take(1_000)
    assert [(each.batch.values, each.reply_to) for each in again] == [*rest, ([1], "third")]


def test_of_chosen_channels_one_record_at_a_time_is_taken_in_their_order() -> None:
    inbox = Inbox({})
    inbox.offer("a", 1, 0, batch(1), "route")
    inbox.offer("b", 1, 0, batch(1, 2), "other")
    found = [inbox.take_one(lambda channel: channel == "b")[0] for _ in range(2)]
    assert [each.batch.rows().seqs for each in found] == [[1], [2]]
    assert inbox.take_one(lambda channel: channel == "b") == []
