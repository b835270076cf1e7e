"""Positions of a partition, whatever retention takes and whoever makes the topic anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millwheel.connectors.kafka.client import Complaints
from millwheel.connectors.kafka.consuming import Consuming
from millwheel.connectors.kafka.reader import Extras, Forms, KafkaReader
from millwheel.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.errors import SetupError
from millwheel.formats.choice import build_decoder
from millwheel.formats.lines import JsonMessages
from millwheel.sources.base import Reader
from millwheel.sources.changes import ChangesReader
from tests.fakes.kafka_library import FakeKafka, Log

SHARE = ("clicks", 0)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka({SHARE: Log([])})
    monkeypatch.setattr("millwheel.connectors.kafka.consuming.library", lambda: made)
    return made


def filled(low: int, end: int) -> Log:
    return Log([json.dumps({"n": number}).encode() for number in range(low, end)], low)


def reader(end: int | None = None, columns: bool = False, **more: Any) -> KafkaReader:
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"], **more)
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    rows = JsonMessages(None, {"n": "int"})
    forms = Forms(rows, None, Extras(None, None, None), rows if columns else None, {"n": "int"})
    return KafkaReader(consuming, SHARE, options, forms, -1, end)


def read_on(read: Reader, position: int, reads: int = 4) -> tuple[list[int], list[tuple[int, str]], int]:
    """Positions of records, positions and reasons of rejects, and where the next read begins."""
    records, rejects = [], []
    for _ in range(reads):
        chunk = read.read(position, 3)
        told = [*chunk.positions, *(reject.position for reject in chunk.rejects)]
        assert all(position < each <= chunk.next_position for each in told), "positions must rise"
        assert chunk.next_position >= position, "a position never goes back"
        records += chunk.positions
        rejects += [(reject.position, reject.reason) for reject in chunk.rejects]
        position = chunk.next_position
    return records, rejects, position


def test_after_a_gap_reading_goes_on_with_the_oldest_message_and_tells_what_is_gone(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(6, 10)
    records, rejects, position = read_on(reader(on_gap="continue"), 2)
    assert (records, position) == ([7, 8, 9, 10], 10)
    assert rejects == [
        (6, "topic clicks, partition 0: offsets 2 to 5 are gone: retention has taken them before they were read")
    ]


def test_a_gap_while_reading_repeats_nothing(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(0, 3)
    read = reader(on_gap="continue")
    assert read_on(read, 0)[0] == [1, 2, 3]
    kafka.logs[SHARE] = filled(7, 9)
    records, rejects, position = read_on(read, 3)
    assert (records, [at for at, _ in rejects], position) == ([8, 9], [7], 9)


def test_a_gap_that_reaches_the_end_of_a_bounded_source_ends_it(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(9, 12)
    read = reader(end=5, on_gap="continue")
    chunk = read.read(2, 10)
    assert (chunk.next_position, chunk.finished, [reject.position for reject in chunk.rejects]) == (5, True, [5])


def test_a_gap_stops_the_run_unless_it_may_go_on(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(6, 10)
    with pytest.raises(SetupError, match=r"has no offset 2 any more.*on_gap: continue.*\(6\)"):
        read_on(reader(), 2)


@pytest.mark.parametrize("on_gap", ["stop", "continue"])
def test_a_topic_that_is_shorter_than_what_was_read_is_another_topic(kafka: FakeKafka, on_gap: str) -> None:
    kafka.logs[SHARE] = filled(0, 3)
    with pytest.raises(SetupError, match=r"ends at offset 3, and was read to 8 already.*created again.*new --root"):
        read_on(reader(on_gap=on_gap), 8)


def test_a_gap_is_told_where_columns_are_read(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(6, 8)
    read = reader(on_gap="continue", columns=True)
    first = read.read_frame(2, 1 << 20)
    assert first is not None
    assert (first.next_position, [reject.position for reject in first.rejects]) == (6, [6])
    second = read.read_frame(6, 1 << 20)
    assert second is not None
    assert (second.positions.tolist(), second.rejects) == ([7, 8], [])


def test_a_reader_that_stops_at_an_offset_has_reached_it_there_and_does_not_end_the_partition(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(0, 9)
    stops = reader()
    stops.stop_at((0, 5))
    records, _, position = read_on(stops, 0)
    assert (records, position) == ([1, 2, 3, 4, 5], 5)
    assert not stops.read(5, 3).finished
    assert stops.reached(5)
    assert not stops.reached(4)


def test_an_update_is_two_records_and_tombstones_are_nothing(kafka: FakeKafka) -> None:
    old, new = {"n": 1}, {"n": 2}
    events = [{"op": "c", "after": old}, {"op": "u", "before": old, "after": new}, {"op": "t"}]
    events.append({"op": "d", "before": new})
    kafka.logs[SHARE] = Log([*(json.dumps(event).encode() for event in events), None], 10)  # type: ignore[list-item]
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"], format="debezium")
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    forms = Forms(build_decoder(options.form(), "", {"n": "int"}), None, Extras(None, None, None))
    read = ChangesReader(KafkaReader(consuming, SHARE, options, forms))
    records, rejects, position = read_on(read, 20, 6)
    assert (records, position) == ([22, 23, 24, 28], 30)
    assert [(at, reason[:38]) for at, reason in rejects] == [(26, "topic clicks, partition 0, offset 12: ")]
    assert "the table was truncated" in rejects[0][1]
    assert read_on(read, 24)[0] == [28]
