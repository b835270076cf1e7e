"""One time is one number of µs, whatever writes it: texts, numbers and typed times, in rows and in
columns.

A table of times, and of values that are none, goes through every format of files. Deliberate
mistakes at the bottom show that the table would notice them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millwheel.connect.formats.avro.containers import _BLOCK, _HEADER
from millwheel.connect.sources.arrow import columns, nested_values
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.engine.workers.delivery.timestamps import Timestamps
from tests.fakes.reading import open_file, read_on

NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # 0001-01-01 and the end of 9999
TIMES = [0, -1, -999_999, NEW_YEAR + 123_456, FIRST, LAST, LAST + 1, 7_273_802_096_123_457]
ENDS = [2**63 - 1, -(2**63), 9_223_372_036_854_776, -9_223_372_036_854_776]
UNITS = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
FAR_DAYS = [0, -719_162, 2_932_896, 2_932_897, -719_163, 2**31 - 1, -(2**31)]


def expected(number: int, unit: str) -> int | None:
    """µs; None where they do not fit into 64 bits."""
    times, by = UNITS[unit]
    us = number * times // by
    return us if -(2**63) <= us < 2**63 else None


def text_of(us: int) -> str:
    days, rest = divmod(us, 86_400_000_000)
    seconds, micros = divmod(rest, 1_000_000)
    day = date.fromordinal(date(1970, 1, 1).toordinal() + days)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{day.isoformat()}T{clock}.{micros:06}Z"


def parquet(path: Path, values: pa.Array, **options: Any) -> Path:
    table = pa.table({"n": pa.array(range(len(values)), pa.int64()), "v": values})
    pq.write_table(table, path / "a.parquet", **options)
    return path / "a.parquet"


def avro(path: Path, schema: Any, values: list[Any]) -> Path:
    """Numbers that Python's times cannot have: written as plain ones, under the schema with the
    logical type."""
    fields = [{"name": "n", "type": "long"}, {"name": "v", "type": schema["type"]}]
    plain = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    out = io.BytesIO()
    for number, value in enumerate(values):
        fastavro.schemaless_writer(out, plain, {"n": number, "v": value})
    fields[1]["type"] = schema
    text = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    file = io.BytesIO()
    sync = bytes(16)
    write = fastavro.schemaless_writer
    write(
        file,
        _HEADER,
        {"magic": b"Obj\x01", "meta": {"avro.schema": text, "avro.codec": b"null"}, "sync": sync},
    )
    write(file, _BLOCK, {"count": len(values), "data": out.getvalue(), "sync": sync})
    (path / "a.avro").write_bytes(file.getvalue())
    return path / "a.avro"


def read_both(path: Path, kind: str, declared: str) -> tuple[dict[int, Any], dict[int, str]]:
    """Values and reasons by number of the record: the same in rows and in columns."""
    rows = read_on(open_file(path, kind))
    typed = {"n": "int", "v": declared}
    again = read_on(open_file(path, kind, fields=typed))
    framed = read_on(open_file(path, kind, fields=typed), size=1 << 20, columns=True)
    assert framed.records == again.records
    assert framed.rejects == again.rejects
    whole = {position: value["v"] for position, value in rows.records}
    assert {position: value["v"] for position, value in again.records}.items() <= whole.items()
    return whole, {reject.position: reject.reason for reject in rows.rejects}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_parquet_are_exact_or_refused(
    tmp_path: Path, unit: str, zone: str | None
) -> None:
    # Parquet has no seconds: Arrow writes milliseconds, of which far seconds would be too many.
    numbers = [0, -1, 1_767_225_600, 253_402_300_800] if unit == "s" else [*TIMES, *ENDS]
    path = parquet(tmp_path, pa.array(numbers, pa.int64()).view(pa.timestamp(unit, tz=zone)))
    values, wrong = read_both(path, "parquet", "int")
    for position, number in enumerate(numbers, 1):
        us = expected(number, unit)
        assert values.get(position) == us
        assert (position in wrong) == (us is None)
        assert us is not None or "field 'v'" in wrong[position]


@pytest.mark.parametrize("unit", UNITS)
def test_columns_of_arrow_never_wrap(unit: str) -> None:
    numbers: list[int | None] = [*TIMES, None, *ENDS]
    column, wrong = columns.plain(pa.array(numbers, pa.int64()).view(pa.timestamp(unit)))
    lists = pa.array([[number] for number in numbers], pa.list_(pa.int64()))
    within, inner = nested_values.nested_values(lists.view(pa.list_(pa.timestamp(unit))))
    for row, number in enumerate(numbers):
        us = None if number is None else expected(number, unit)
        assert column[row].as_py() == us
        assert within[row] == (None if number is not None and us is None else [us])
        assert (row in wrong) == (row in inner) == (number is not None and us is None)


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_of_parquet_have_a_text_or_are_refused(tmp_path: Path, kind: Any) -> None:
    stored = pa.array(FAR_DAYS, pa.int32()).cast(pa.date32())
    if kind == pa.date64():
        stored = pc.multiply(pa.array(FAR_DAYS, pa.int64()), 86_400_000).view(pa.date64())
    plain = pa.array([{"d": [each]} for each in FAR_DAYS], pa.struct([("d", pa.list_(pa.int32()))]))
    for column in (stored, plain.view(pa.struct([("d", pa.list_(pa.date32()))]))):
        path = parquet(tmp_path, column)
        rows = read_on(open_file(path, "parquet"))
        assert [value["n"] for value in rows.values] == [0, 1, 2]
        assert [reject.position for reject in rows.rejects] == [4, 5, 6, 7]
        assert all(
            "years 1 to 9999" in reject.reason and "field 'v'" in reject.reason
            for reject in rows.rejects
        )


def test_times_of_96_bits_reach_all_years(tmp_path: Path) -> None:
    moments = [us for us in TIMES if FIRST <= us <= LAST]
    path = parquet(
        tmp_path, pa.array(moments, pa.timestamp("us")), use_deprecated_int96_timestamps=True
    )
    assert list(read_both(path, "parquet", "int")[0].values()) == moments


@pytest.mark.parametrize("local", ["", "local-"])
@pytest.mark.parametrize(("name", "unit"), [("millis", "ms"), ("micros", "us"), ("nanos", "ns")])
def test_timestamps_of_avro_are_exact_or_refused(
    tmp_path: Path, local: str, name: str, unit: str
) -> None:
    numbers = [*TIMES, *ENDS]
    path = avro(tmp_path, {"type": "long", "logicalType": f"{local}timestamp-{name}"}, numbers)
    values, wrong = read_both(path, "avro", "int")
    assert [values.get(position) for position in range(1, len(numbers) + 1)] == [
        expected(n, unit) for n in numbers
    ]
    assert sorted(wrong) == [
        position for position, n in enumerate(numbers, 1) if expected(n, unit) is None
    ]


def test_dates_of_avro_have_a_text_or_are_refused(tmp_path: Path) -> None:
    values, wrong = read_both(
        avro(tmp_path, {"type": "int", "logicalType": "date"}, FAR_DAYS), "avro", "str"
    )
    assert list(values.values()) == ["1970-01-01", "0001-01-01", "9999-12-31"]
    assert sorted(wrong) == [4, 5, 6, 7]
    assert all("field 'v'" in reason and "years 1 to 9999" in reason for reason in wrong.values())


def test_a_text_of_avro_that_is_not_utf_8_costs_its_own_record_only(tmp_path: Path) -> None:
    path = avro(tmp_path, {"type": "string"}, ["before", "XX", "behind"])
    path.write_bytes(path.read_bytes().replace(b"XX", b"\xff\xfe"))
    values, wrong = read_both(path, "avro", "str")
    assert values == {1: "before", 3: "behind"}
    assert list(wrong) == [2]
    assert "not UTF-8" in wrong[2]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_text_is_the_same_time_in_every_format(tmp_path: Path, kind: str) -> None:
    times = [us for us in TIMES if FIRST <= us <= LAST]
    texts = [text_of(us) for us in times]
    lines = [json.dumps({"n": n, "v": text}) for n, text in enumerate(texts)]
    lines = ["n,v", *(f"{n},{text}" for n, text in enumerate(texts))] if kind == "csv" else lines
    (tmp_path / "a").write_text("\n".join(lines) + "\n", encoding="utf-8")
    read = [
        read_on(open_file(tmp_path / "a", kind, fields=fields)).values
        for fields in (None, {"v": "str"})
    ]
    for values in read:
        assert Timestamps(StreamSpec("s", timestamp="v"), None).of(values) == (times, {})


def wrapping(column: pa.Array, as_text: bool = False) -> columns.Plain:
    """A mistake: Arrow converts times, and wraps around at the ends of 64 bits."""
    if pa.types.is_timestamp(column.type):
        return columns.Plain(
            pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
        )
    return columns.plain(column, as_text)


def always_fits(number: int, times: int, by: int = 1) -> int:
    """A mistake: a time beyond 64 bits is cut to its lowest bits."""
    return (number * times // by + 2**63) % 2**64 - 2**63


MISTAKES: list[tuple[str, Any, Callable[[Path], None]]] = [
    (
        "millwheel.connect.sources.arrow.parquet.plain",
        wrapping,
        lambda path: test_timestamps_of_parquet_are_exact_or_refused(path, "ms", None),
    ),
    (
        "millwheel.connect.sources.arrow.nested_values.scaled_us",
        always_fits,
        lambda path: test_columns_of_arrow_never_wrap("ms"),
    ),
    (
        "millwheel.connect.formats.avro.decode.scaled_us",
        always_fits,
        lambda path: test_timestamps_of_avro_are_exact_or_refused(path, "", "millis", "ms"),
    ),
]


@pytest.mark.parametrize(("where", "mistake", "sweep"), MISTAKES)
def test_the_table_notices_times_that_wrap(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    mistake: Any,
    sweep: Callable[[Path], None],
) -> None:
    monkeypatch.setattr(where, mistake)
    with pytest.raises(AssertionError):
        sweep(tmp_path)
