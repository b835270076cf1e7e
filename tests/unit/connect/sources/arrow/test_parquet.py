"""Parquet: row numbers as positions, across row groups; Arrow's types as plain data; types that do
not fit."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.connect.sources.arrow.parquet import ParquetReader
from millwheel.errors import SetupError
from tests.fakes.reading import open_file, read_on

FIELDS = {"n": "int", "s": "str"}
IN_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)


def written(path: Path, columns: dict[str, Any], group: int = 3) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 5))
@IN_FOLDER
def test_rows_have_their_numbers_wherever_reading_begins(
    tmp_path: Path, rows: int, position: int, size: int
) -> None:
    path = written(
        tmp_path / "a.parquet",
        {"n": pa.array(range(rows), pa.int64()), "s": pa.array(["x"] * rows)},
    )
    position = min(position, rows)
    expected = [(number, {"n": number - 1, "s": "x"}) for number in range(position + 1, rows + 1)]
    for columns in (False, True):
        found = read_on(open_file(path, "parquet", fields=FIELDS), position, size, columns)
        assert found.records == expected
        assert found.finished
        assert found.next_position == rows


def test_going_back_and_changing_form_is_allowed(tmp_path: Path) -> None:
    reader: Any = open_file(
        written(tmp_path / "a.parquet", {"n": range(7), "s": ["x"] * 7}), "parquet", fields=FIELDS
    )
    assert reader.read(0, 3).positions == [1, 2, 3]
    assert reader.read_frame(3, 1).frame["n"].to_list() == [3, 4, 5, 6]
    assert reader.read(1, 2).values[0] == {"n": 1, "s": "x"}
    assert reader.read_frame(1, 1).positions.tolist() == [2, 3, 4, 5, 6, 7]


def test_types_that_only_arrow_has_become_plain_data(tmp_path: Path) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc)
    us = round(when.timestamp() * 1_000_000)
    path = written(
        tmp_path / "a.parquet",
        {
            "ms": pa.array([when], pa.timestamp("ms", "UTC")),
            "ns": pa.array([when.replace(tzinfo=None)], pa.timestamp("ns")),
            "day": pa.array([date(2026, 1, 2)]),
            "clock": pa.array([time(0, 0, 1)], pa.time32("s")),
            "took": pa.array([timedelta(seconds=2)], pa.duration("ms")),
            "price": pa.array([Decimal("1.25")]),
            "kind": pa.array(["a"]).dictionary_encode(),
            "raw": pa.array([b"\x00"]),
            "many": pa.array([[1, 2]]),
            "none": pa.array([None]),
        },
    )
    (value,) = read_on(open_file(path, "parquet")).values
    assert value == {
        "ms": us,
        "ns": us,
        "day": "2026-01-02",
        "clock": 1_000_000,
        "took": 2_000_000,
        "price": 1.25,
        "kind": "a",
        "raw": b"\x00",
        "many": [1, 2],
        "none": None,
    }
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value)) == value


@pytest.mark.parametrize(
    ("column", "kind", "good"),
    [
        (pa.array([1, 2], pa.int8()), "int", [1, 2]),
        (pa.array([1, None], pa.uint64()), "int", [1, None]),
        (pa.array([1, 2**64 - 1], pa.uint64()), "int", [1]),
        (pa.array([1, 2], pa.int32()), "float", [1.0, 2.0]),
        (pa.array([1.5, None], pa.float32()), "float", [1.5, None]),
        (pa.array([1.5, 2.0]), "int", []),
        (pa.array(["1", None]), "int", [None]),
        (pa.array([True, False]), "int", []),
        (pa.array([True, False]), "bool", [True, False]),
        (pa.array([b"x", b"y"]), "str", []),
        (pa.array(["x", None], pa.large_string()), "str", ["x", None]),
        (pa.nulls(2), "bool", [None, None]),
    ],
)
def test_rows_and_columns_agree_on_what_fits_a_declared_type(
    tmp_path: Path, column: Any, kind: str, good: Any
) -> None:
    path = written(tmp_path / "a.parquet", {"v": column})
    rows = read_on(open_file(path, "parquet", fields={"v": kind, "absent": "int"}))
    columns = read_on(open_file(path, "parquet", fields={"v": kind, "absent": "int"}), columns=True)
    assert [value["v"] for value in rows.values] == good
    assert [type(value["v"]) for value in rows.values] == [type(value) for value in good]
    assert columns.records == [
        (index, {"v": value["v"], "absent": None}) for index, value in rows.records
    ]
    assert [position for position, _ in columns.rejected] == [
        position for position, _ in rows.rejected
    ]
    assert len(rows.rejects) == 2 - len(good)


def test_a_schema_decides_row_by_row(tmp_path: Path) -> None:
    class Row(msgspec.Struct):
        n: int

    path = written(tmp_path / "a.parquet", {"n": pa.array([1, None, 3])})
    found = read_on(open_file(path, "parquet", schema=Row))
    assert found.records == [(1, Row(1)), (3, Row(3))]
    assert [(reject.position, reject.reason) for reject in found.rejects] == [
        (2, "Expected `int`, got `null` - at `$.n`")
    ]


def test_a_file_that_is_no_parquet_is_a_setup_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"hello")
    with pytest.raises(SetupError, match="as Parquet"):
        open_file(path, "parquet")


def test_a_file_that_lost_rows_is_a_setup_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"n": [1, 2]})
    with pytest.raises(SetupError, match="2 rows, but 5 were read before"):
        open_file(path, "parquet").read(5, 10)


class Click(msgspec.Struct):
    user: str
    cost: float
    n: int
    kept: bool | None = None
    index: str = msgspec.field(name="where", default="")


CLICKS = {
    "other": [1, 2, 3],
    "n": [7, 8, 9],
    "user": ["a", "ü", ""],
    "kept": [True, None, False],
    "cost": [0.5, 1.0, 1e300],
    "where": ["x", "y", "z"],
}


def read_all(path: Path, schema: type) -> Any:
    return read_on(open_file(path, "parquet", schema=schema), 0, 2)


def test_columns_become_objects_of_the_schema(tmp_path: Path) -> None:
    found = read_all(written(tmp_path / "a.parquet", CLICKS), Click)
    rows = [dict(zip(CLICKS, row, strict=True)) for row in zip(*CLICKS.values(), strict=True)]
    assert found.records == list(enumerate(msgspec.convert(rows, list[Click]), 1))
    assert found.finished


class Cautious(Click):
    def __post_init__(self) -> None:
        if self.cost > 10:
            raise ValueError("too dear")


class Strict(Click, forbid_unknown_fields=True):
    pass


class Named(Click, kw_only=True):
    more: int


class Listed(Click, array_like=True):
    pass


class Bounded(msgspec.Struct):
    n: Annotated[int, msgspec.Meta(le=8)]


@pytest.mark.parametrize(
    ("schema", "columns", "kept", "why"),
    [
        (Cautious, CLICKS, [1, 2], "too dear"),
        (Strict, CLICKS, [], "unknown field `other`"),
        (Named, {**CLICKS, "more": [1, 2, 3]}, [1, 2, 3], ""),
        (Listed, CLICKS, [], "Expected `array`, got `object`"),
        (Bounded, CLICKS, [1, 2], "<= 8"),
        (Click, {**CLICKS, "user": ["a", None, "b"]}, [1, 3], "Expected `str`, got `null`"),
        (Click, {**CLICKS, "cost": [1, 2, 3]}, [1, 2, 3], ""),
        (Click, {**CLICKS, "n": ["1", "2", "3"]}, [], "Expected `int`, got `str`"),
        (Click, {name: column for name, column in CLICKS.items() if name != "kept"}, [1, 2, 3], ""),
        (
            Click,
            {name: column for name, column in CLICKS.items() if name != "n"},
            [],
            "missing required field `n`",
        ),
    ],
)
def test_what_does_not_fit_the_schema_is_told_row_by_row(
    tmp_path: Path, schema: type, columns: dict[str, Any], kept: list[int], why: str
) -> None:
    found = read_all(written(tmp_path / "a.parquet", columns), schema)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert found.records == [(index, msgspec.convert(rows[index - 1], schema)) for index in kept]
    assert [reject.position for reject in found.rejects] == [
        index for index in (1, 2, 3) if index not in kept
    ]
    assert all(why in reject.reason for reject in found.rejects)


def test_a_decimal_that_is_declared_as_text_keeps_all_digits(tmp_path: Path) -> None:
    cost = pa.array([Decimal("0.10"), Decimal("12345678901234567.89"), None], pa.decimal128(20, 2))
    pq.write_table(pa.table({"cost": cost}), tmp_path / "a.parquet")
    for columns in (False, True):
        found = read_on(
            open_file(tmp_path / "a.parquet", "parquet", fields={"cost": "str"}), columns=columns
        )
        assert [value["cost"] for value in found.values] == ["0.10", "12345678901234567.89", None]


def test_texts_that_are_not_utf_8_cost_their_own_rows_only(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", None, b"d"]).view(pa.string())
    within = pa.array([[b"a"], [b"b"], None, [b"\xfe"]], pa.list_(pa.binary())).view(
        pa.list_(pa.string())
    )
    pq.write_table(pa.table({"n": [0, 1, 2, 3], "v": texts, "w": within}), tmp_path / "a.parquet")
    found = read_on(open_file(tmp_path / "a.parquet", "parquet"))
    assert [value["n"] for value in found.values] == [0, 2]
    assert [(reject.position, reject.reason[:9]) for reject in found.rejects] == [
        (2, "field 'v'"),
        (4, "field 'w'"),
    ]


def test_a_column_that_is_there_twice_names_the_file(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["amount", "amount"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(SetupError, match=r"twice\.parquet has several columns named 'amount'"):
        open_file(tmp_path / "twice.parquet", "parquet")


def test_a_row_group_that_unpacks_to_far_too_much_is_a_dead_letter_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millwheel.connect.sources.arrow.bounds.MOST_BYTES", 1_000_000)
    path = str(tmp_path / "a.parquet")
    small = pa.table({"n": [1, 2], "x": ["a", "b"]})
    bomb = pa.table({"n": [3, 4, 5], "x": ["a" * 1_000_000] * 3})
    with pq.ParquetWriter(path, small.schema, compression="zstd", use_dictionary=False) as writer:
        for table in (small, bomb, small):
            writer.write_table(table)
    for fields in ({}, {"n": "int", "x": "str"}):
        reader = ParquetReader(path, None, fields)
        found, rejects, position, finished = [], [], 0, False
        while not finished:
            if fields:
                frame = reader.read_frame(position, 1 << 20)
                assert frame is not None
                found += frame.frame["n"].to_list()
                rejects, position, finished = (
                    [*rejects, *frame.rejects],
                    frame.next_position,
                    frame.finished,
                )
            else:
                chunk = reader.read(position, 100)
                found += [value["n"] for value in chunk.values]
                rejects, position, finished = (
                    [*rejects, *chunk.rejects],
                    chunk.next_position,
                    chunk.finished,
                )
        assert (found, position, [each.position for each in rejects]) == ([1, 2, 1, 2], 7, [3])
        assert "its rows 3 to 5 are left out" in rejects[0].reason


_WIDE = [Decimal("12345678.25"), Decimal(1)]


@pytest.mark.parametrize(
    ("cost", "expected", "reason"),
    [
        (pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), [150, None], ""),
        (pa.array([Decimal("1.5000"), Decimal(-2)], pa.decimal128(30, 4)), [150, -200], ""),
        (pa.array([Decimal("1.5"), Decimal(1)], pa.decimal256(60, 2)), [150, 100], ""),
        (pa.array([Decimal("1.5001"), Decimal(1)], pa.decimal128(9, 4)), [100], "than 2 digits"),
        (pa.array(_WIDE, pa.decimal128(30, 2)), [100], "more than 4 digits before the point"),
        (pa.array([1.5, None]), [None], "it is float 1.5, and a decimal is a number or a text"),
    ],
)  # fmt: skip
def test_a_field_that_is_declared_as_a_decimal_is_exact(
    tmp_path: Path, cost: Any, expected: list[Any], reason: str
) -> None:
    path = written(tmp_path / "a.parquet", {"cost": cost})
    for columns in (False, True):
        fields = {"cost": "decimal(6, 2)"}
        found = read_on(open_file(path, "parquet", fields=fields), 0, 10, columns)
        assert [value["cost"] for _, value in found.records] == expected
        assert len(found.rejects) == bool(reason)
        assert all(reason in each.reason for each in found.rejects)
