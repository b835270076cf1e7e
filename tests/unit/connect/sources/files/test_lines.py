"""Files of lines: the replay law, unterminated and overlong lines, and what is not a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.reading import open_file, read_on

FIELDS = {"n": "int", "x": "float", "s": "str", "b": "bool"}
ODD = [
    *(
        b"",
        b"   ",
        b"{",
        b"}",
        b"5",
        b"[1]",
        b'{"n":1} {"n":2}',
        b'{"n":',
        b"1}",
        b'{"s":"\xff"}',
        b'{"other":"\xc3"}',
    ),
    *(
        b"\xf0\x9f",
        b'{"n":1.5}',
        b'{"n":"1"}',
        b'{"n":99999999999999999999}',
        b'{"b":0}',
        b'{"s":7}',
        b'{"s":{"n":1}}',
    ),
    *(
        b'{"x":1e999}',
        b'{"n":1}x',
        b'\t{"n":3}\t',
        b'{"a":[{}',
        b"{}]}",
        b"{}{}",
        b'{"x":10000000000000000000000}',
    ),
    '{"s":"日本 é"}'.encode(),
]
LINES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.integers(-(2**63), 2**63 - 1),
            "x": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
            "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
            "b": st.booleans() | st.none(),
            "other": st.lists(st.integers(0, 3), max_size=2),
        },
    ).map(msgspec.json.encode),
    st.sampled_from(ODD),
)
ENDS = st.sampled_from([b"\n", b"\r\n"])
CONTENTS = st.builds(
    lambda lines, last: b"".join(line + end for line, end in lines) + last,
    st.lists(st.tuples(LINES, ENDS), max_size=12),
    LINES | st.just(b""),
)
IN_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)


def one_by_one(content: bytes, decode: Any) -> tuple[list[tuple[int, Any]], list[int]]:
    """What each line is by itself: the law that reading in blocks must keep."""
    records, rejects, end = [], [], 0
    for line in content.split(b"\n"):
        end = min(end + len(line) + 1, len(content))
        if not line.strip():
            continue
        try:
            records.append((end, decode(line)))
        except (msgspec.MsgspecError, ValueError):
            rejects.append(end)
    return records, rejects


@given(CONTENTS, st.sampled_from([1, 2, 5, 100]))
@IN_FOLDER
def test_every_line_is_what_it_is_by_itself_however_many_are_read(
    tmp_path: Path, content: bytes, size: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    found = read_on(open_file(path), size=size)
    records, rejects = one_by_one(content, msgspec.json.Decoder(dict[str, Any]).decode)
    assert found.records == records
    assert [reject.position for reject in found.rejects] == rejects
    assert found.finished


@given(CONTENTS, st.data())
@IN_FOLDER
def test_reading_again_from_any_position_gives_the_rest(
    tmp_path: Path, content: bytes, data: st.DataObject
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    reader = open_file(path, fields=data.draw(st.sampled_from([{}, FIELDS])))
    whole = read_on(reader)
    indexes = [
        0,
        *(position for position, _ in whole.records),
        *(position for position, _ in whole.rejected),
    ]
    position = data.draw(st.sampled_from(indexes))
    rest = read_on(open_file(path, fields=reader._frames and FIELDS), position, size=3)  # type: ignore[attr-defined]
    assert (rest.records, rest.rejected) == whole.after(position)


@given(CONTENTS)
@IN_FOLDER
def test_columns_hold_what_rows_hold(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    rows = read_on(open_file(path, fields=FIELDS))
    columns = read_on(open_file(path, fields=FIELDS), size=4096, columns=True)
    assert columns.records == [
        (at, {name: value.get(name) for name in FIELDS}) for at, value in rows.records
    ]
    assert columns.rejected == rows.rejected


class Event(msgspec.Struct):
    n: int
    s: str = ""


@given(CONTENTS)
@IN_FOLDER
def test_a_schema_decides_what_is_a_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    found = read_on(open_file(path, schema=Event), size=4)
    decoder = msgspec.json.Decoder(Event)
    records, rejects = one_by_one(content, lambda line: (line.decode(), decoder.decode(line))[1])
    assert found.records == records
    assert [reject.position for reject in found.rejects] == rejects


def test_an_unterminated_last_line_is_a_record_of_a_bounded_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2}')
    found = read_on(open_file(path))
    assert found.records == [(8, {"n": 1}), (15, {"n": 2})]
    assert found.finished


def test_an_unterminated_last_line_of_a_followed_file_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":')
    reader = open_file(path, follow=True)
    first = read_on(reader)
    assert (first.records, first.next_position, first.finished) == ([(8, {"n": 1})], 8, False)
    with path.open("ab") as out:
        out.write(b"22}\n")
    assert read_on(reader, 8).records == [(17, {"n": 22})]


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n":1}\n{"n":2}\n')
    assert read_on(open_file(path), size=1).records == [(11, {"n": 1}), (19, {"n": 2})]


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("ending", [b"", b"\n", b'\n{"n":3}\n'])
def test_an_overlong_line_is_rejected_without_being_kept(
    tmp_path: Path, size: int, ending: bytes
) -> None:
    path = tmp_path / "a.jsonl"
    long = b'{"s":"' + b"x" * 300_000 + b'"}'
    path.write_bytes(b'{"n":1}\n' + long + ending)
    found = read_on(open_file(path, max_line_bytes=1000), size=size)
    assert found.values == [{"n": 1}, {"n": 3}][: 2 if len(ending) > 1 else 1]
    (reject,) = found.rejects
    assert reject.position == 8 + len(long) + min(len(ending), 1)
    assert "max_line_bytes: 1000" in reject.reason
    assert len(reject.raw) <= 65_536
    assert found.finished


def test_a_line_of_exactly_the_limit_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = b'{"s":"' + b"x" * 91 + b'"}\n'
    path.write_bytes(line + line[:-1] + b" \n" + line[:-1] + b"  \n")
    found = read_on(open_file(path, max_line_bytes=101))
    assert [position for position, _ in found.records] == [100, 201]
    assert [reject.position for reject in found.rejects] == [303]


def test_an_overlong_line_of_a_followed_file_is_rejected_once_it_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 5000)
    reader = open_file(path, follow=True, max_line_bytes=1000)
    assert read_on(reader).next_position == 0
    with path.open("ab") as out:
        out.write(b'yy\n{"n":1}\n')
    found = read_on(reader)
    assert [reject.position for reject in found.rejects] == [5003]
    assert found.records == [(5011, {"n": 1})]


def test_a_reject_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":tru}\n[1]\n{"n":1\n{"s":"\xff"}\n')
    found = read_on(open_file(path))
    assert [(reject.raw, reject.reason) for reject in found.rejects] == [
        ('{"n":tru}', "JSON is malformed: invalid character (column 10)"),
        ("[1]", "Expected `object`, got `array`"),
        ('{"n":1', "JSON is malformed: the line ends too soon"),
        ('{"s":"\\xff"}', "not UTF-8: invalid start byte (column 7)"),
    ]


def test_a_declared_field_of_another_type_is_rejected_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":"1"}\n{"x":true}\n{"x":3}\n')
    found = read_on(open_file(path, fields=FIELDS))
    assert found.values == [{"n": 1}, {"x": 3.0}]
    assert type(found.values[1]["x"]) is float
    assert [reject.reason for reject in found.rejects] == [
        "field 'n' is str '1', but is declared as int",
        "field 'x' is bool True, but is declared as float",
    ]


def test_no_more_records_come_than_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n" * 100_000)
    reader = open_file(path)
    chunk = reader.read(0, 10)
    assert len(chunk) == 10
    assert [len(reader.read(chunk.next_position, size)) for size in (1, 777)] == [1, 777]


def test_an_empty_file_ends_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"")
    assert read_on(open_file(path)).finished
    assert read_on(open_file(path, fields=FIELDS), columns=True).finished


@pytest.mark.parametrize("ended", [True, False])
def test_a_read_of_columns_in_many_pieces_is_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    monkeypatch.setattr("millwheel.connect.sources.files.lines._PIECE_BYTES", 4096)
    lines = [b'{"n":%d,"s":"%s"}' % (number, b"x" * (number % 300)) for number in range(500)]
    lines[100], lines[200], lines[201] = b"no record", b"", b'{"s":"' + b"y" * 9000 + b'"}'
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + (b"\n" if ended else b""))
    rows = read_on(open_file(tmp_path / "a.jsonl", fields=FIELDS))
    whole: Any = open_file(tmp_path / "a.jsonl", fields=FIELDS)
    read = whole.read_frame(0, 1 << 20)
    assert read.finished
    assert len(read) == 498
    for size in (5_000, 50_000, 1 << 20):
        columns = read_on(open_file(tmp_path / "a.jsonl", fields=FIELDS), size=size, columns=True)
        assert columns.records == [
            (at, {name: value.get(name) for name in FIELDS}) for at, value in rows.records
        ]
        assert columns.rejected == rows.rejected
        assert columns.next_position == rows.next_position


def test_whole_records_are_columns_of_declared_and_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x":1,"n":2,"y":0.5}\n{"n":3,"x":0.5,"y":1.0}\n')
    reader = open_file(path, fields={"n": "int", "x": "float"})
    for fields, known in (({}, False), ({"y": "float"}, True), ({"y": "float", "z": "int"}, True)):
        assert reader.take_whole({"n": "int", "x": "float", **fields})
        found = reader.read_frame(0, 1_000)
        assert (found is not None) == known
        if found is not None:
            assert found.frame.columns == ["n", "x", *fields]
            assert found.frame["x"].to_list() == [1.0, 0.5]
    # a whole number where others are floats, and nobody has declared it
    path.write_text('{"x":1,"n":2,"y":1}\n')
    reader = open_file(path, fields={"n": "int", "x": "float"})
    assert reader.take_whole({"n": "int", "x": "float", "y": "float"})
    assert reader.read_frame(0, 1_000) is None


def test_other_formats_cannot_tell_whether_records_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n,x\n1,2.5\n")
    assert not open_file(path, "csv", fields={"n": "int", "x": "float"}).take_whole(
        {"n": "int", "x": "float"}
    )
