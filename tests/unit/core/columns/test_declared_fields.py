from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest

from millwheel.core.columns.declared_fields import (
    FieldTypes,
    as_read,
    column_of,
    example_frame,
    frame_of,
    frames_of,
    from_texts,
    row_type,
    with_times,
)
from millwheel.core.model.records import Values
from millwheel.errors import RecordError


def test_a_kind_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="field 'n' is declared as 'integer'; write one of int, float, str, bool, timestamp",
    ):
        FieldTypes({"n": "integer"})
    with pytest.raises(ValueError, match="field 't' is declared as 'timestamps'"):
        FieldTypes({"t": "timestamps"})


def test_missing_and_empty_fields_fit_every_type() -> None:
    types = FieldTypes({"i": "int", "f": "float", "s": "str", "b": "bool"})
    assert (
        types.check(
            [
                {},
                {"i": None, "f": None, "s": None, "b": None},
                {"i": 1, "f": 1.5, "s": "x", "b": True},
            ]
        )
        == {}
    )


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("int", "1", "field 'x' is str '1', but is declared as int"),
        ("int", True, "field 'x' is bool True, but is declared as int"),
        ("int", 1.0, "field 'x' is float 1.0, but is declared as int"),
        ("int", 2**63, "which does not fit into 64 bits"),
        ("str", 1, "field 'x' is int 1, but is declared as str"),
        ("bool", 0, "field 'x' is int 0, but is declared as bool"),
        ("float", 10**400, "a number beyond the range of floats"),
    ],
)
def test_only_the_record_with_another_type_is_refused(kind: str, value: Any, words: str) -> None:
    problems = FieldTypes({"x": kind}).check([{"x": None}, {"x": value}, {}])
    assert problems.keys() == {1}
    assert words in problems[1]


def test_whole_numbers_in_a_float_field_become_floats() -> None:
    values = [{"x": 1}, {"x": 2.5}, {}]
    assert FieldTypes({"x": "float"}).check(values) == {}
    assert [type(value.get("x")) for value in values] == [float, float, type(None)]


def test_a_whole_number_in_a_float_field_is_a_float_for_all_who_took_the_field_before() -> None:
    values = Values([{"x": 1}, {"x": 2.5}])
    before = values.column("x")
    assert FieldTypes({"x": "float"}).check(values) == {}
    assert values == [{"x": 1.0}, {"x": 2.5}]
    assert (
        list(map(type, values.column("x") or [])) == list(map(type, before or [])) == [float, float]
    )


def test_the_ends_of_64_bits_fit() -> None:
    assert FieldTypes({"x": "int"}).check([{"x": 2**63 - 1}, {"x": -(2**63)}]) == {}
    assert FieldTypes({"x": "int"}).check([{"x": -(2**63) - 1}]).keys() == {0}


def test_a_column_has_none_where_a_field_is_missing() -> None:
    assert column_of("x", [{"x": 1}, {}]) == [1, None]


def test_texts_become_what_was_declared() -> None:
    assert from_texts("x", "int", ["1", "", "-3"]) == [1, None, -3]
    assert from_texts("x", "bool", ["Yes", "0", ""]) == [True, False, None]
    assert from_texts("x", "str", ["", "a"]) == ["", "a"]


@pytest.mark.parametrize(
    ("kind", "text"), [("int", "1.5"), ("bool", "maybe"), ("float", "x"), ("int", str(2**63))]
)
def test_a_text_of_another_type_is_told(kind: str, text: str) -> None:
    with pytest.raises(RecordError, match="field 'x' is"):
        from_texts("x", kind, [text])


FIELDS = {"n": "int", "odd name": "str", "f": "float", "b": "bool"}


def test_dicts_and_decoded_rows_become_the_same_frame() -> None:
    rows = [{"n": 1, "odd name": "x", "f": 1.5, "b": True, "more": 0}, {"n": None}, {}]
    decoded = [msgspec.json.decode(msgspec.json.encode(row), type=row_type(FIELDS)) for row in rows]
    frame = frame_of(rows, FIELDS)
    assert frame.equals(frame_of(decoded, FIELDS))
    assert frame.schema == {"n": pl.Int64, "odd name": pl.String, "f": pl.Float64, "b": pl.Boolean}
    assert frame.row(0) == (1, "x", 1.5, True)


@pytest.mark.parametrize(
    "line", [b'{"n": "1"}', b'{"n": 9223372036854775808}', b'{"b": 1}', b'{"odd name": 1}']
)
def test_another_type_than_declared_is_no_row(line: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(line, type=row_type(FIELDS))


def test_more_fields_than_are_written_out_are_read_in_their_order() -> None:
    fields = {f"c{index}": "int" for index in range(9)}
    row = msgspec.convert({name: index for index, name in enumerate(fields)}, row_type(fields))
    assert frame_of([row], fields).row(0) == tuple(range(9))


def test_no_rows_are_a_frame_with_the_columns() -> None:
    assert frame_of([], FIELDS).columns == list(FIELDS)


def test_frames_are_joined_in_their_order() -> None:
    parts = [frame_of([{"n": number}], {"n": "int"}) for number in (3, 1, 2)]
    assert frames_of(parts)["n"].to_list() == [3, 1, 2]
    assert frames_of(parts[:1]) is parts[0]


def test_an_example_has_all_columns_and_rows() -> None:
    assert example_frame(FIELDS, 7).shape == (7, 4)


NEW_YEAR = 1_767_225_600_000_000  # 2026-01-01
TIMES = {"at": "timestamp", "ms": "timestamp ms - -", "n": "int"}
ROWS = [
    {"at": "2026-01-01T00:00:00Z", "ms": 1_767_225_600_000, "n": 1},
    {"at": "2026-01-01T01:00:00Z", "ms": 1_767_225_600_001, "n": 2},
]
READ = [
    {"at": NEW_YEAR, "ms": NEW_YEAR, "n": 1},
    {"at": NEW_YEAR + 3_600_000_000, "ms": NEW_YEAR + 1_000, "n": 2},
]


def _copies(rows: list[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


@pytest.mark.parametrize("as_values", [False, True])
def test_times_become_microseconds(as_values: bool) -> None:
    rows: Any = Values(_copies(ROWS), None, 100) if as_values else _copies(ROWS)
    assert FieldTypes(TIMES).check(rows) == {}
    assert list(rows) == READ
    assert column_of("at", rows) == [row["at"] for row in READ]


def test_times_of_mixed_forms_are_read_one_by_one() -> None:
    rows: list[dict[str, Any]] = [{"at": NEW_YEAR}, {"at": "2026-01-01"}, {"at": None}, {}]
    assert FieldTypes(TIMES).check(rows) == {}
    assert rows == [{"at": NEW_YEAR}, {"at": NEW_YEAR}, {"at": None}, {}]


def test_a_field_that_is_no_time_is_named_with_its_value_and_the_cure() -> None:
    problems = FieldTypes(TIMES).check([{"at": "yesterday"}, {"at": NEW_YEAR}, {"at": False}])
    assert problems.keys() == {0, 2}
    assert problems[0] == (
        "field 'at' is declared as timestamp: the timestamp 'yesterday' is neither a number nor"
        " ISO 8601 text; other texts need a format: {type: timestamp, format: '%d.%m.%Y %H:%M'}"
    )


def test_times_in_texts_of_files() -> None:
    assert from_texts("at", "timestamp", ["2026-01-01T00:00:00Z"] * 2) == [NEW_YEAR] * 2
    assert from_texts("at", "timestamp", ["2026-01-01", "", str(NEW_YEAR)]) == [
        NEW_YEAR,
        None,
        NEW_YEAR,
    ]
    assert from_texts("at", "timestamp ms - -", ["1767225600000"]) == [NEW_YEAR]
    with pytest.raises(RecordError, match="field 'at' is declared as timestamp: "):
        from_texts("at", "timestamp", ["yesterday"])


def test_a_frame_has_times_as_whole_numbers() -> None:
    decoded = [msgspec.json.decode(msgspec.json.encode(row), type=row_type(TIMES)) for row in ROWS]
    found = frame_of(decoded, TIMES)
    assert found.equals(frame_of(READ, TIMES))
    assert found.dtypes == [pl.Int64] * 3
    assert example_frame(TIMES, 3).dtypes == [pl.Int64] * 3
    none = msgspec.convert({}, row_type(TIMES))
    assert frame_of([none], TIMES).row(0) == (None, None, None)


def test_a_frame_of_what_is_no_time_is_refused() -> None:
    row = msgspec.convert({"at": "yesterday"}, row_type(TIMES))
    with pytest.raises(RecordError, match="'yesterday'"):
        frame_of([row], TIMES)


def test_typed_columns_become_times() -> None:
    kinds = {"at": "timestamp", "ms": "timestamp ms - -"}
    frame = pl.DataFrame({"at": ["2026-01-01T00:00:00Z"], "ms": [1_767_225_600_000]})
    found = with_times(frame, kinds)
    assert found is not None
    assert found.row(0) == (NEW_YEAR, NEW_YEAR)
    for wrong in (["yesterday"], [None], [1.5], [1_767_225_600]):
        assert with_times(frame.with_columns(at=pl.Series(wrong)), kinds) is None
    assert as_read(TIMES) == {"at": "int", "ms": "int", "n": "int"}


_DECIMAL = {"d": "decimal(6, 2)", "f": "float"}


@pytest.mark.parametrize("as_values", [False, True])
def test_decimals_become_units_and_other_fractions_floats(as_values: bool) -> None:
    records: list[Any] = [
        {"d": Decimal("1.50"), "f": Decimal("0.1"), "x": [Decimal("2.50")]},
        {"d": "7"},
        {"d": None},
        {"d": 3},
        {},
    ]
    read = Values(records, None, 1) if as_values else records
    assert FieldTypes(_DECIMAL).check(read) == {}
    assert [each.get("d") for each in read] == [150, 700, None, 300, None]
    assert read[0]["x"] == [2.5]
    assert type(read[0]["f"]) is float


def test_what_is_no_decimal_is_named_with_its_value() -> None:
    records: list[Any] = [{"d": Decimal("1.005")}, {"d": 1.5}, {"f": Decimal("1e999")}]
    assert FieldTypes(_DECIMAL).check(records) == {
        0: "field 'd' is declared as decimal(6, 2): it is 1.005, which has more than 2 digits"
        " behind the point",
        1: "field 'd' is declared as decimal(6, 2): it is float 1.5, and a decimal is a number or"
        " a text",
        2: "field 'f': a number is too large",
    }
    with pytest.raises(ValueError, match="more digits behind the point than digits"):
        FieldTypes({"d": "decimal(2, 5)"})


def test_decimals_in_texts_of_files() -> None:
    assert from_texts("d", "decimal(6, 2)", ["1.5", "", "-2"]) == [150, None, -200]
    with pytest.raises(RecordError, match="field 'd' is declared as decimal"):
        from_texts("d", "decimal(6, 2)", ["x"])


def test_a_frame_has_decimals_as_units() -> None:
    kind = row_type(_DECIMAL)
    text = b'[{"d":0.10,"f":0.1},{"d":"2"},{"d":7,"f":1},{"d":null}]'
    rows = msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
    frame = frame_of(rows, _DECIMAL)
    assert frame["d"].to_list() == [10, 200, 700, None]
    assert frame.schema == {"d": pl.Int64, "f": pl.Float64}
    with pytest.raises(RecordError, match="more than 4 digits before the point"):
        frame_of([kind(Decimal(10_000), 0.0)], _DECIMAL)
