from __future__ import annotations

import threading
from typing import Any

import pytest

from millwheel.connectors.external.writer import ExternalWriter
from millwheel.errors import CorruptionError, FencedError, UnavailableError
from millwheel.sinks.base import BatchRefusedError, SinkBatch, SinkRecord
from tests.fakes.memory_target import MemorySink, Table


def prepared(writer: ExternalWriter, number: int, *values: Any) -> bytes:
    return writer.prepare(SinkBatch(number, f"1-{number}", [SinkRecord(("k", 1), value, 5) for value in values]))


def test_the_target_is_asked_what_it_holds_once_and_then_gets_each_batch() -> None:
    table = Table()
    writer = MemorySink(table).open("sink.out-0", 1)
    for number in range(3):
        writer.publish(prepared(writer, number, number))
    assert (table.calls, table.rows) == (["fence", "write 0", "write 1", "write 2"], [0, 1, 2])
    assert table.marks == {"root/sink.out-0": (2, 1)}


def test_what_the_target_holds_is_not_written_again() -> None:
    table = Table()
    former = MemorySink(table).open("s", 1)
    committable = prepared(former, 0, "a")
    former.publish(committable)
    heir = MemorySink(table).open("s", 2)
    heir.publish(committable)
    heir.publish(prepared(heir, 1, "b"))
    assert table.rows == ["a", "b"]


def test_a_lost_answer_is_looked_up() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    writer.publish(prepared(writer, 0, "a"))
    table.lost_answers = True
    committable = prepared(writer, 1, "b")
    with pytest.raises(UnavailableError):
        writer.publish(committable)
    table.lost_answers = False
    writer.publish(committable)
    assert (table.rows, table.calls) == (["a", "b"], ["fence", "write 0", "write 1", "fence"])


def test_a_former_owner_is_fenced() -> None:
    table = Table()
    former, heir = (MemorySink(table).open("s", token) for token in (1, 2))
    former.publish(prepared(former, 0, "a"))
    heir.publish(prepared(heir, 0, "a"))
    with pytest.raises(FencedError, match="newer publisher: its lease token is 2, ours 1"):
        former.publish(prepared(former, 1, "b"))
    with pytest.raises(FencedError):
        former.publish(prepared(former, 1, "b"))
    assert table.rows == ["a"]


def test_refused_rows_are_told_with_the_batch_without_them() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    with pytest.raises(BatchRefusedError) as caught:
        writer.publish(prepared(writer, 0, 1, 13, 2, 13))
    assert [(each.record, each.reason) for each in caught.value.refused] == [
        (SinkRecord(("k", 1), 13, 5), "13 is odd")
    ] * 2
    assert table.rows == []
    writer.publish(caught.value.committable)
    assert table.rows == [1, 2]
    assert table.marks == {"root/s": (0, 1)}, "the next batch is number 1"


def test_a_value_that_is_no_plain_data_is_refused_at_once() -> None:
    writer = MemorySink(Table()).open("s", 1)
    committable = prepared(writer, 0, 1, object(), 2)
    (refused,) = writer.take_refused()
    assert "the value cannot be written" in refused.reason
    assert writer.take_refused() == []
    writer.publish(committable)


def test_damaged_rows_are_told() -> None:
    with pytest.raises(CorruptionError, match="the rows of a batch"):
        MemorySink(Table()).open("s", 1).publish(b"\xc1")


def test_a_writer_that_is_closed_while_it_publishes_releases_the_target_afterwards() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    begun, go_on = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        table.calls.append(name)
        begun.set()
        go_on.wait(10)

    writer._target._called = slow  # type: ignore[attr-defined]
    thread = threading.Thread(target=writer.publish, args=(prepared(writer, 0, "a"),))
    thread.start()
    begun.wait(10)
    writer.close()
    assert "close" not in table.calls
    go_on.set()
    thread.join()
    assert table.calls[-1] == "close"
    with pytest.raises(FencedError, match="closed here"):
        writer.publish(prepared(writer, 1, "b"))
