"""Positions of a partition, whatever retention takes and whoever makes the topic anew."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from millwheel.connect.connectors.kafka.client import Complaints
from millwheel.connect.connectors.kafka.consumer import Consuming
from millwheel.connect.connectors.kafka.reader import Extras, Forms, KafkaReader
from millwheel.connect.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.connect.formats.choice import build_decoder
from millwheel.connect.formats.lines import JsonMessages, WholeJsonMessages
from millwheel.connect.sources.base import Reader
from millwheel.connect.sources.changes import ChangesReader
from millwheel.core.columns.declared_fields import row_type
from millwheel.core.tracing import NOT_SAMPLED, TraceContext
from millwheel.errors import SetupError
from tests.fakes.kafka_library import FakeKafka, Log

SHARE = ("clicks", 0)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka({SHARE: Log([])})
    monkeypatch.setattr("millwheel.connect.connectors.kafka.consumer.library", lambda: made)
    return made


def filled(low: int, end: int) -> Log:
    return Log([json.dumps({"n": number}).encode() for number in range(low, end)], low)


def reader(end: int | None = None, columns: bool = False, **more: Any) -> KafkaReader:
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"], **more)
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    rows = JsonMessages(None, {"n": "int"})
    forms = Forms(rows, None, Extras(None, None, None), rows if columns else None, {"n": "int"})
    return KafkaReader(consuming, SHARE, options, forms, -1, end)


def read_on(
    read: Reader, position: int, reads: int = 4
) -> tuple[list[int], list[tuple[int, str]], int]:
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


def test_after_a_gap_reading_goes_on_with_the_oldest_message_and_tells_what_is_gone(
    kafka: FakeKafka,
) -> None:
    kafka.logs[SHARE] = filled(6, 10)
    records, rejects, position = read_on(reader(on_gap="continue"), 2)
    assert (records, position) == ([7, 8, 9, 10], 10)
    assert rejects == [
        (
            6,
            (
                "topic clicks, partition 0: offsets 2 to 5 are gone: retention has taken them"
                " before they were read"
            ),
        )
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
    assert (chunk.next_position, chunk.finished, [reject.position for reject in chunk.rejects]) == (
        5,
        True,
        [5],
    )


def test_a_gap_stops_the_run_unless_it_may_go_on(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = filled(6, 10)
    with pytest.raises(SetupError, match=r"has no offset 2 any more.*on_gap: continue.*\(6\)"):
        read_on(reader(), 2)


@pytest.mark.parametrize("on_gap", ["stop", "continue"])
def test_a_topic_that_is_shorter_than_what_was_read_is_another_topic(
    kafka: FakeKafka, on_gap: str
) -> None:
    kafka.logs[SHARE] = filled(0, 3)
    with pytest.raises(
        SetupError, match=r"ends at offset 3, and was read to 8 already.*created again.*new --root"
    ):
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


def test_a_reader_that_stops_at_an_offset_has_reached_it_there_and_does_not_end_the_partition(
    kafka: FakeKafka,
) -> None:
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
    events: list[dict[str, object]] = [
        {"op": "c", "after": old},
        {"op": "u", "before": old, "after": new},
        {"op": "t"},
    ]
    events.append({"op": "d", "before": new})
    kafka.logs[SHARE] = Log([*(json.dumps(event).encode() for event in events), None], 10)  # type: ignore[list-item]
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"], format="debezium")
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    forms = Forms(build_decoder(options.form(), "", {"n": "int"}), None, Extras(None, None, None))
    read = ChangesReader(KafkaReader(consuming, SHARE, options, forms))
    records, rejects, position = read_on(read, 20, 6)
    assert (records, position) == ([22, 23, 24, 28], 30)
    assert [(at, reason[:38]) for at, reason in rejects] == [
        (26, "topic clicks, partition 0, offset 12: ")
    ]
    assert "the table was truncated" in rejects[0][1]
    assert read_on(read, 24)[0] == [28]


def test_a_tombstone_deletes_in_its_turn_whatever_class_rows_have(kafka: FakeKafka) -> None:
    class Row(msgspec.Struct):
        v: int
        k: str

    log = Log([b'{"v": 1}', None, b'{"v": 2}', b""], 10)  # type: ignore[list-item]
    log.keys.update(dict.fromkeys(range(10, 14), b"a"))
    kafka.logs[SHARE] = log
    options = KafkaSourceOptions(
        brokers="b:1", topics=["clicks"], tombstones="delete", key_field="k"
    )
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    forms = Forms(build_decoder(options.form(), "", {}), Row, Extras("k", None, None))
    chunk = KafkaReader(consuming, SHARE, options, forms).read(10, 9)
    one, gone, two = chunk.values
    assert (one.v, two.v, one.k) == (1, 2, "a")
    assert (gone["k"], gone["__deleted__"]) == ("a", True)
    assert chunk.positions == [11, 12, 13]
    assert [reject.position for reject in chunk.rejects] == [14], "an empty value is none"


PARENT = f"00-{'a' * 32}-{'c' * 16}-01"


@pytest.mark.parametrize("columns", [False, True])
def test_contexts_in_headers_come_with_the_records_once_the_pipeline_asks(
    kafka: FakeKafka, columns: bool
) -> None:
    log = kafka.logs[SHARE] = filled(0, 4)
    log.headers = {
        1: [("other", b"x"), ("traceparent", PARENT.encode()), ("tracestate", b"v=1")],
        0: [("traceparent", PARENT.replace("-01", "-00").encode())],
        2: [("traceparent", b"nonsense")],
        3: [("traceparent", b"nonsense"), ("traceparent", PARENT.encode())],
    }
    read = reader(columns=columns)

    def chunk() -> Any:
        return read.read_frame(0, 1_000) if columns else read.read(0, 10)

    assert chunk().traces is None
    read.tell_traces()
    assert chunk().traces == {
        1: NOT_SAMPLED,
        2: TraceContext(PARENT, "v=1"),
        4: TraceContext(PARENT),
    }


def test_headers_are_not_looked_at_unless_the_pipeline_asks(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.logs[SHARE] = filled(0, 4)
    monkeypatch.setattr(
        "tests.fakes.kafka_library.Message.headers", lambda _: pytest.fail("a message was asked")
    )
    assert len(reader().read(0, 10)) == 4


AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "ad", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cost", "type": ["null", "double"]},
    ],
}
TYPES = {"ad": "str", "ts": "int", "cost": "float"}


def avro(rows: list[dict[str, Any]]) -> Log:
    encoder = AvroEncoder(AVRO)
    return Log([encoder.encode(row) for row in rows])


def avro_reader(declared: dict[str, str] | None = None) -> KafkaReader:
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"])
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    rows = AvroMessages(AVRO, fields=declared)
    extras = Extras(None, None, None)
    forms = (
        Forms(rows, None, extras, rows, declared)
        if declared
        else Forms(rows, None, extras, guesses=True)
    )
    return KafkaReader(consuming, SHARE, options, forms)


def click(n: int, cost: float | None = 0.5) -> dict[str, Any]:
    return {"ad": f"a{n}", "ts": n * 1_000, "cost": cost}


def test_avro_messages_of_undeclared_fields_are_columns_as_their_schema_says(
    kafka: FakeKafka,
) -> None:
    kafka.logs[SHARE] = avro([click(n) for n in range(40)])
    rows = avro_reader().read(0, 100)
    assert rows.values[3] == {"ad": "a3", "ts": 3_000, "cost": 0.5}
    read = avro_reader()
    assert read.take_columns(TYPES)
    found = read.read_frame(0, 1_000_000)
    assert found is not None
    assert found.frame.to_dicts() == rows.values
    assert found.positions.tolist() == rows.positions
    assert found.next_position == rows.next_position
    declared = avro_reader(TYPES).read_frame(0, 1_000_000)
    assert declared is not None
    assert found.frame.equals(declared.frame)


@pytest.mark.parametrize("types", [{**TYPES, "cost": "int"}, {**TYPES, "other": "str"}, TYPES])
def test_what_has_other_types_than_were_found_is_read_by_rows_and_fetched_once(
    kafka: FakeKafka, types: dict[str, str]
) -> None:
    kafka.logs[SHARE] = avro(
        [*(click(n) for n in range(30)), click(30, None), *(click(n) for n in range(31, 40))]
    )
    whole = avro_reader().read(0, 100)
    read = avro_reader()
    asked: list[int] = []
    take = read._consuming.take
    read._consuming.take = lambda share, offset, most: (
        asked.append(offset) or take(share, offset, most)
    )  # type: ignore[method-assign,func-returns-value]
    assert read.take_columns(types)
    assert read.read_frame(0, 1_000_000) is None
    values, positions, position = [], [], 0
    while position < whole.next_position:
        chunk = read.read(position, 16)
        assert not chunk.caught_up or chunk.next_position == whole.next_position
        values, positions, position = (
            values + chunk.values,
            positions + chunk.positions,
            chunk.next_position,
        )
    assert (values, positions) == (whole.values, whole.positions)
    assert asked == [0]


def test_a_read_from_another_position_forgets_what_gave_no_columns(kafka: FakeKafka) -> None:
    kafka.logs[SHARE] = avro([click(n, None) for n in range(20)])
    read = avro_reader()
    assert read.take_columns(TYPES)
    assert read.read_frame(0, 1_000_000) is None
    assert read.read(0, 5).next_position == 5
    assert [value["ad"] for value in read.read(2, 2).values] == ["a2", "a3"]
    assert [value["ad"] for value in read.read(4, 2).values] == ["a4", "a5"]


def test_times_are_read_in_columns_and_what_is_none_sends_all_to_be_read_as_rows(
    kafka: FakeKafka,
) -> None:
    kinds = {"at": "timestamp"}
    good = json.dumps({"at": "2026-01-01T00:00:00Z"}).encode()
    rows = JsonMessages(None, kinds)
    forms = Forms(rows, None, Extras(None, None, None), JsonMessages(row_type(kinds)), kinds)
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"])
    read = KafkaReader(
        Consuming("b:1", {}, options.isolation, Complaints("b:1")), SHARE, options, forms
    )
    kafka.logs[SHARE] = Log([good, good, good, b'{"at": "yesterday"}'])
    found = read.read_frame(0, 1)
    assert found is None
    chunk = read.read(0, 4)
    assert [value["at"] for value in chunk.values] == [1_767_225_600_000_000] * 3
    assert [reject.position for reject in chunk.rejects] == [4]
    kafka.logs[SHARE] = Log([good, good])
    frame = read.read_frame(0, 1)
    assert frame is not None
    assert frame.frame["at"].to_list() == [1_767_225_600_000_000] * 2


def whole(fields: dict[str, str]) -> WholeJsonMessages:
    return WholeJsonMessages(row_type(fields, fields.keys() - {"n"}, whole=True))


def test_whole_records_have_columns_while_all_have_the_same_fields(kafka: FakeKafka) -> None:
    def told(**more: Any) -> bytes:
        return json.dumps({"n": 1, **more}).encode()

    kafka.logs[SHARE] = Log([told(x="a"), told(x="b"), b"", told(x="c")])
    rows = JsonMessages(None, {"n": "int"})
    columns = JsonMessages(row_type({"n": "int"}))
    forms = Forms(rows, None, Extras(None, None, None), columns, {"n": "int"}, whole=whole)
    options = KafkaSourceOptions(brokers="b:1", topics=["clicks"])
    consuming = Consuming("b:1", {}, options.isolation, Complaints("b:1"))
    read = KafkaReader(consuming, SHARE, options, forms)
    assert read.take_whole({"n": "int"})
    assert read.read_frame(0, 1_000) is None  # there is x as well
    assert read.take_whole({"n": "int", "x": "str"})
    found = read.read_frame(0, 1_000)
    assert found is not None
    assert found.frame.to_dict(as_series=False) == {"n": [1, 1, 1], "x": ["a", "b", "c"]}
    assert (found.positions.tolist(), found.next_position) == ([1, 2, 4], 4)
    for other in (told(), told(x=1), told(x=None), told(x="a", y=1), b"{", b'{"n": "1", "x": "a"}'):
        kafka.logs[SHARE] = Log([told(x="a"), other])
        assert read.read_frame(0, 1_000) is None, other
        assert read.read(0, 10).next_position == 2
    assert not reader(columns=True).take_whole({"n": "int"})
