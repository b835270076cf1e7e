from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from millwheel.connect.connectors.external.meanings import MOST_TRIES
from millwheel.connect.connectors.external.sink import (
    ExternalWriter,
    decode_rows,
    encode_rows,
    encode_what_can,
)
from millwheel.connect.connectors.external.target import Owner, RowsRefusedError
from millwheel.connect.sinks.base import BatchRefusedError, BatchSplitError, SinkBatch, SinkRecord
from millwheel.errors import (
    CorruptionError,
    FencedError,
    MillwheelError,
    SetupError,
    UnavailableError,
)
from tests.fakes.memory_target import MemorySink, Table


def prepared(writer: ExternalWriter, number: int, *values: Any) -> bytes:
    return writer.prepare(
        SinkBatch(number, f"1-{number}", [SinkRecord(("k", 1), value, 5) for value in values])
    )


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
    successor = MemorySink(table).open("s", 2)
    successor.publish(committable)
    successor.publish(prepared(successor, 1, "b"))
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
    former, successor = (MemorySink(table).open("s", token) for token in (1, 2))
    former.publish(prepared(former, 0, "a"))
    successor.publish(prepared(successor, 0, "a"))
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


class Panic(BaseException):
    """As pyo3's, which is not an Exception."""


Panic.__name__ = "PanicException"


def told(writer: ExternalWriter, committable: bytes) -> list[str]:
    """What ``publish`` raises until it is no longer to be tried again."""
    found: list[str] = []
    for _ in range(20):
        try:
            writer.publish(committable)
        except UnavailableError as ex:
            found.append(type(ex).__name__)
        except MillwheelError as ex:
            return [*found, type(ex).__name__]
        else:
            return found
    raise AssertionError("it is tried for ever")


@pytest.mark.parametrize("error", [KeyError("odd"), Panic("index out of bounds")])
def test_an_error_that_nobody_knows_is_tried_a_few_times_and_then_the_batch_is_split(
    error: Any,
) -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    committable = prepared(writer, 0, "a", "b")
    table.trouble = [None, *[error, None] * 20]
    assert told(writer, committable) == ["UnavailableError"] * (MOST_TRIES - 1) + [
        "BatchSplitError"
    ]
    assert table.rows == []


def test_an_error_that_nobody_knows_and_no_row_explains_stops_the_run() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    table.trouble = [Panic("index out of bounds")] * 20
    assert told(writer, prepared(writer, 0, "a", "b")) == ["UnavailableError"] * (
        MOST_TRIES - 1
    ) + ["SetupError"]


def test_an_error_about_values_splits_the_batch_at_once() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    table.trouble = [None, OverflowError("too large"), None]
    assert told(writer, prepared(writer, 0, "a", "b")) == ["BatchSplitError"]


def test_a_batch_that_was_written_before_its_client_failed_is_not_split() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    committable = prepared(writer, 0, "a", "b")
    target: Any = writer._target
    write = target.write

    def fails_behind_the_commit(*words: Any) -> None:
        write(*words)
        raise OverflowError("too large")

    target.write = fails_behind_the_commit
    assert told(writer, committable) == []
    assert table.rows == ["a", "b"]


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize(
    "error", [OverflowError("too large"), KeyError("odd"), Panic("index out of bounds")]
)
def test_exactly_the_row_to_blame_is_refused_and_every_other_row_is_written_once(
    rows: int, error: Any
) -> None:
    for bad in range(rows):
        table = Table()
        writer = MemorySink(table).open("s", 1)
        target: Any = writer._target
        target.write = fails_with(bad, error, target.write)
        refused = published_in_parts(writer, [prepared(writer, 0, *range(rows))])
        assert refused == [bad]
        assert table.rows == [row for row in range(rows) if row != bad]


def test_a_target_that_fails_at_every_row_stops_the_run() -> None:
    table = Table()
    writer = MemorySink(table).open("s", 1)
    target: Any = writer._target
    target.write = fails_with(None, KeyError("odd"), target.write)
    with pytest.raises(SetupError, match="KeyError: 'odd'"):
        published_in_parts(writer, [prepared(writer, 0, *range(8))])
    assert table.rows == []


def fails_with(bad: Any, error: BaseException, write: Any) -> Any:
    def failing(number: int, records: Any) -> None:
        if any(bad is None or record.value == bad for record in records):
            raise error
        write(number, records)

    return failing


def published_in_parts(writer: ExternalWriter, waiting: list[bytes]) -> list[Any]:
    """Publish as the runtime does; the values of refused rows."""
    refused: list[Any] = []
    while waiting:
        try:
            writer.publish(waiting[0])
        except UnavailableError:
            continue
        except BatchRefusedError as ex:
            refused += [each.record.value for each in ex.refused]
            waiting[0] = ex.committable
        except BatchSplitError as ex:
            waiting[:1] = ex.parts
            behind = decode_rows(ex.parts[-1]).number + 1
            waiting[2:] = [
                writer.renumbered(each, behind + at) for at, each in enumerate(waiting[2:])
            ]
        else:
            waiting.pop(0)
    return refused


def test_rows_survive_the_journal() -> None:
    moment = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    records = [
        SinkRecord(("a", 1), {"n": 1, "b": b"x", "t": moment, "l": [1, None]}, 5),
        SinkRecord(None, "text", -1),
    ]
    batch = decode_rows(encode_rows(7, records))
    assert (batch.number, batch.records()) == (7, records)


def test_what_is_no_plain_data_is_left_out() -> None:
    records = [
        SinkRecord("a", 1, 0),
        SinkRecord("b", object(), 0),
        SinkRecord("c", 1 << 70, 0),
        SinkRecord("d", 2, 0),
    ]
    data, refused = encode_what_can(0, records)
    assert decode_rows(data).records() == [records[0], records[3]]
    assert [each.record for each in refused] == records[1:3]


# sink.py


def test_each_shard_has_a_lane_and_a_name_of_its_own() -> None:
    sink = MemorySink(Table())
    assert sink.open("s-0", 1).lane == "root/s-0"
    assert sink.open("s-1", 1).lane == "root/s-1"


def test_a_sink_without_identity_is_not_opened() -> None:
    with pytest.raises(SetupError, match="lacks its root's identity"):
        MemorySink(Table(), identity="").open("s", 1)


# target.py


def test_a_newer_token_shuts_an_owner_out_and_its_own_and_older_ones_do_not() -> None:
    owner = Owner("root/s", 2)
    owner.admits(1)
    owner.admits(2)
    with pytest.raises(FencedError):
        owner.admits(3)


def test_a_refusal_tells_the_words_of_the_target() -> None:
    assert str(RowsRefusedError({1: "too long", 4: "too late"})) == "too long; too late"
