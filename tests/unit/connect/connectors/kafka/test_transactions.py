"""Rows of a shard appear once, whoever publishes and whatever fails in between. Here with brokers
in memory; ``tests/slow/test_kafka_sink.py`` has a real one."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.adapters.waits import Wait
from millwheel.connect.connectors.external.absence import Absence
from millwheel.connect.connectors.external.target import RowsRefusedError
from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.messages import Committable, Message
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.connectors.kafka.transactions import AtLeastOnce, Transactions
from millwheel.errors import FencedError, UnavailableError
from tests.fakes.kafka_transactions import Failure, FakeBrokers, KafkaException

OPTIONS = KafkaSinkOptions(brokers="b:1", topic="out")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    made = FakeBrokers()
    for module in ("transactions", "marks"):
        monkeypatch.setattr(f"millwheel.connect.connectors.kafka.{module}.library", lambda: made)
    return made


def owner(token: int) -> Transactions:
    return Transactions(
        OPTIONS, "p-1.sink.out-0", token, Complaints("b:1"), Absence(Wait("Kafka at b:1"))
    )


def committable(number: int, rows: int = 2) -> Committable:
    return Committable(
        number, [Message(b"k", f"{number}.{row}".encode(), [], -1, 0) for row in range(rows)]
    )


def values(brokers: FakeBrokers) -> list[str]:
    return [row["value"].decode() for row in brokers.of("out")]


def fails_once(brokers: FakeBrokers, call: str, failure: Failure) -> None:
    """The next call of that name raises; those after it do not."""

    def trouble(name: str) -> None:
        if name == call:
            brokers.trouble = lambda _: None
            raise KafkaException(failure)

    brokers.trouble = trouble


def test_what_is_published_again_is_there_once_also_by_a_successor(brokers: FakeBrokers) -> None:
    first, second = owner(1), owner(2)
    for number in (0, 1, 0, 1):
        first.publish(committable(number))
    for number in (0, 1, 2):
        second.publish(committable(number))
    assert values(brokers) == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]


def test_a_former_owner_publishes_nothing_and_learns_that_it_is_one(brokers: FakeBrokers) -> None:
    zombie, successor = owner(1), owner(2)
    zombie.publish(committable(0))
    successor.publish(committable(1))
    with pytest.raises(UnavailableError, match="_FENCED"):
        zombie.publish(committable(1))
    with pytest.raises(FencedError, match=r"has a newer publisher: its lease token is 2, ours 1"):
        zombie.publish(committable(1))
    successor.publish(committable(2))
    assert values(brokers) == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]


def test_a_zombie_that_knows_that_it_was_fenced_does_not_fence_its_heir(
    brokers: FakeBrokers,
) -> None:
    zombie, successor = owner(1), owner(2)
    zombie.publish(committable(0))
    successor.publish(committable(1))
    with pytest.raises(UnavailableError):
        zombie.publish(committable(1))
    brokers.calls.clear()
    with pytest.raises(FencedError):
        zombie.publish(committable(1))
    assert "init_transactions" not in brokers.calls


@pytest.mark.parametrize(
    "call", ["init_transactions", "begin_transaction", "produce", "commit_transaction"]
)
@pytest.mark.parametrize("abortable", [False, True])
def test_what_fails_before_it_counts_is_sent_again_whole(
    brokers: FakeBrokers, call: str, abortable: bool
) -> None:
    publisher = owner(1)
    if call != "init_transactions":
        publisher.publish(committable(0))
    fails_once(brokers, call, Failure("_TIMED_OUT", abortable))
    with pytest.raises(
        UnavailableError, match=r"Kafka at b:1 did not take a transaction of p-1\.sink\.out-0"
    ):
        publisher.publish(committable(1))
    assert (brokers.calls[-1] == "abort_transaction") == (abortable and call != "init_transactions")
    publisher.publish(committable(1))
    assert [value for value in values(brokers) if value.startswith("1")] == ["1.0", "1.1"]


def test_a_commit_whose_answer_is_lost_is_not_done_twice(brokers: FakeBrokers) -> None:
    publisher = owner(1)
    publisher.publish(committable(0))
    fails_once(brokers, "commit_transaction answered", Failure("_TIMED_OUT"))
    with pytest.raises(UnavailableError):
        publisher.publish(committable(1))
    publisher.publish(committable(1))
    assert values(brokers) == ["0.0", "0.1", "1.0", "1.1"]


def test_a_message_has_what_its_row_says_and_no_more(brokers: FakeBrokers) -> None:
    full = Message(b"k", None, [("h", b"1")], 3, 1_700_000_000_000, "elsewhere")
    owner(1).publish(Committable(0, [full, Message(None, b"v", [], -1, 0)]))
    assert brokers.of("elsewhere") == [
        {
            "key": b"k",
            "value": None,
            "headers": [("h", b"1")],
            "partition": 3,
            "timestamp": 1_700_000_000_000,
        }
    ]
    assert brokers.of("out") == [{"key": None, "value": b"v"}]


@pytest.mark.parametrize("message", [1, 2, 3, 4])
def test_a_full_queue_is_waited_for_also_by_the_mark(brokers: FakeBrokers, message: int) -> None:
    full = [False] * 4
    full[-message] = True

    def trouble(name: str) -> None:
        if name == "produce" and full and full.pop():
            raise BufferError

    brokers.trouble = trouble
    owner(1).publish(committable(0))
    assert values(brokers) == ["0.0", "0.1"]
    assert brokers.calls.count("poll") == 1


def test_a_row_that_is_refused_together_with_others_is_found_and_nothing_is_written(
    brokers: FakeBrokers,
) -> None:
    publisher = owner(1)
    publisher.publish(committable(0))
    brokers.too_large = b"1.1"
    with pytest.raises(UnavailableError):
        publisher.publish(committable(1, 3))
    with pytest.raises(
        RowsRefusedError, match="topic 'out': the broker said MSG_SIZE_TOO_LARGE"
    ) as raised:
        publisher.publish(committable(1, 3))
    assert list(raised.value.reasons) == [1]
    assert values(brokers) == ["0.0", "0.1"], "nothing is visible before the letter is committed"
    publisher.publish(
        Committable(1, [row for row in committable(1, 3).messages if row.value != b"1.1"])
    )
    assert values(brokers) == ["0.0", "0.1", "1.0", "1.2"]


# --- at least once --------------------------------------------------------------------------------


def test_without_transactions_rows_are_written_again_after_a_failure(brokers: FakeBrokers) -> None:
    publisher = AtLeastOnce(OPTIONS, Complaints("b:1"), Absence(Wait("Kafka at b:1")))
    brokers.refused = Failure("_MSG_TIMED_OUT")
    with pytest.raises(
        UnavailableError, match="did not take rows for out: the broker said _MSG_TIMED_OUT"
    ):
        publisher.publish(committable(0))
    brokers.refused = None
    publisher.publish(committable(0))
    assert values(brokers) == ["0.0", "0.1"]


def test_without_transactions_refused_rows_are_told_and_the_others_not_written_again(
    brokers: FakeBrokers,
) -> None:
    publisher = AtLeastOnce(OPTIONS, Complaints("b:1"), Absence(Wait("Kafka at b:1")))
    brokers.refused = Failure("MSG_SIZE_TOO_LARGE")
    with pytest.raises(
        RowsRefusedError, match="Kafka refuses it for topic 'out': the broker said MSG_SIZE"
    ):
        publisher.publish(committable(0))
    brokers.refused = None
    publisher.publish(Committable(0, []))
    publisher.publish(committable(1))
    assert values(brokers) == ["1.0", "1.1"]


def test_without_transactions_rows_count_only_when_all_are_answered(brokers: FakeBrokers) -> None:
    publisher = AtLeastOnce(OPTIONS, Complaints("b:1"), Absence(Wait("Kafka at b:1")))
    brokers.unsent = 1
    with pytest.raises(UnavailableError, match="no answer within 60 s"):
        publisher.publish(committable(0))
    made: Any = publisher
    assert made._producer is None, "what hangs in its queue would come behind what is sent again"
