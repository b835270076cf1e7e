from __future__ import annotations

import msgspec
import polars as pl
import pytest

from millwheel.sources.frames import example_frame, frame_of, frames_of, row_type

FIELDS = {"n": "int", "odd name": "str", "f": "float", "b": "bool"}


def test_dicts_and_decoded_rows_become_the_same_frame() -> None:
    rows = [{"n": 1, "odd name": "x", "f": 1.5, "b": True, "more": 0}, {"n": None}, {}]
    decoded = [msgspec.json.decode(msgspec.json.encode(row), type=row_type(FIELDS)) for row in rows]
    frame = frame_of(rows, FIELDS)
    assert frame.equals(frame_of(decoded, FIELDS))
    assert frame.schema == {"n": pl.Int64, "odd name": pl.String, "f": pl.Float64, "b": pl.Boolean}
    assert frame.row(0) == (1, "x", 1.5, True)


@pytest.mark.parametrize("line", [b'{"n": "1"}', b'{"n": 9223372036854775808}', b'{"b": 1}', b'{"odd name": 1}'])
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
