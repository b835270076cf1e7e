"""CSV: headers, declared columns and types, quotes over several lines, and lines that fit no
header."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.errors import SetupError
from tests.fakes.reading import open_file, read_on

CELLS = st.text(st.sampled_from('ab", \n1é'), max_size=6)
IN_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@given(
    st.lists(st.tuples(CELLS, CELLS), max_size=8),
    st.sampled_from([1, 2, 100]),
    st.sampled_from(["\n", "\r\n"]),
)
@IN_FOLDER
def test_what_a_csv_writer_wrote_is_read_however_much_at_once(
    tmp_path: Path, rows: list[tuple[str, str]], size: int, ending: str
) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    path = written(tmp_path / "a.csv", out.getvalue())
    whole = read_on(open_file(path, "csv"), size=size)
    assert whole.values == [{"a": a, "b": b} for a, b in rows]
    assert whole.finished
    for position, _ in whole.records:
        rest = read_on(open_file(path, "csv"), position, size)
        assert (rest.records, rest.rejected) == whole.after(position)


BAD = ["1,2", '"1",2', "x,2", "1", "1,2,3", "", '"1', '"', '1,"2', 'a"b,2', "1\r,2", '"1"2,3']


@given(st.lists(st.sampled_from(BAD), max_size=8))
@IN_FOLDER
def test_bad_lines_are_rejected_alike_however_much_is_read_at_once(
    tmp_path: Path, lines: list[str]
) -> None:
    path = written(tmp_path / "a.csv", "a,b\n" + "\n".join(lines))
    fields = {"a": "int"}
    whole = read_on(open_file(path, "csv", fields=fields))
    for size in (1, 2):
        again = read_on(open_file(path, "csv", fields=fields), size=size)
        assert (again.records, again.rejected) == (whole.records, whole.rejected)
    columns = read_on(open_file(path, "csv", fields=fields), size=4096, columns=True)
    assert columns.records == [(position, {"a": value["a"]}) for position, value in whole.records]
    assert columns.rejected == whole.rejected


def test_values_are_text_unless_declared_and_empty_ones_are_none(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "n,x,s,b,other\n1,2.5,t,true,7\n,,,,\n")
    found = read_on(
        open_file(path, "csv", fields={"n": "int", "x": "float", "s": "str", "b": "bool"})
    )
    assert found.values == [
        {"n": 1, "x": 2.5, "s": "t", "b": True, "other": "7"},
        {"n": None, "x": None, "s": "", "b": None, "other": ""},
    ]


def test_columns_may_be_declared_and_the_delimiter_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "1;2\n3;4")
    found = read_on(open_file(path, "csv", columns=["a", "b"], delimiter=";"))
    assert found.records == [(4, {"a": "1", "b": "2"}), (7, {"a": "3", "b": "4"})]


def test_a_schema_takes_text_for_numbers(tmp_path: Path) -> None:
    class Row(msgspec.Struct):
        n: int
        x: float = 0.0

    found = read_on(open_file(written(tmp_path / "a.csv", "n,x\n1,2.5\nz,1\n"), "csv", schema=Row))
    assert found.values == [Row(1, 2.5)]
    assert len(found.rejects) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1", "1 fields where there are 2 columns (a, b)"),
        ("1,2,3", "3 fields where there are 2 columns (a, b)"),
        ("x,2", "field 'a' is 'x', but is declared as int"),
        (
            "99999999999999999999,2",
            "field 'a' is 99999999999999999999, which does not fit into 64 bits",
        ),
        ('1,"2', "a quote is not closed"),
    ],
)
def test_a_bad_line_is_rejected_with_a_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "a.csv", f"a,b\n5,6\n{line}\n7,8\n")
    found = read_on(open_file(path, "csv", fields={"a": "int"}))
    assert [value["a"] for value in found.values] == [5, 7]
    assert [(reject.raw, reject.reason) for reject in found.rejects] == [(line, reason)]


def test_a_quote_that_is_never_closed_spoils_one_line_and_not_the_file(tmp_path: Path) -> None:
    rows = "".join(f"{i},text of row {i}\n" for i in range(500))
    path = written(tmp_path / "a.csv", f'a,b\n1,"oops\n{rows}')
    found = read_on(open_file(path, "csv", max_line_bytes=1000), size=10)
    assert len(found.values) == 500
    assert [reject.raw for reject in found.rejects] == ['1,"oops']


@pytest.mark.parametrize(
    ("first", "then", "value"),
    [('a,b\n1,"first\n', 'second"\n', "first\nsecond"), ("a,", "b\n1,2\n", "2")],
)
def test_a_followed_file_waits_for_the_closing_quote_and_for_its_header(
    tmp_path: Path, first: str, then: str, value: str
) -> None:
    path = written(tmp_path / "a.csv", first)
    reader = open_file(path, "csv", follow=True)
    assert read_on(reader).next_position == 0
    with path.open("a") as out:
        out.write(then)
    assert read_on(reader).values == [{"a": "1", "b": value}]


def test_a_header_that_is_none_is_a_setup_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(SetupError, match="declare columns"):
        read_on(open_file(path, "csv"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16"),
        (b"a,b\r1,2\r", "old Macs"),
        (b"a,b\r1,2\r" * 200, "old Macs"),
        (b"a,b,a\n1,2,3\n", "names 'a' several times"),
        (b"a,,\n1,2,3\n", "names '' several times"),
        (b"a, a\n1,2\n", "names 'a' several times"),
        (b"\xe9,b\n1,2\n", "not a header"),
    ],
)
def test_a_header_that_is_none_names_the_file_and_what_to_do(
    tmp_path: Path, data: bytes, said: str
) -> None:
    path = tmp_path / "one-of-many.csv"
    path.write_bytes(data)
    with pytest.raises(SetupError, match=r"one-of-many\.csv") as told:
        read_on(open_file(path, "csv", max_line_bytes=100))
    assert said in str(told.value)


def test_a_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    text = "x" * 500_000
    path = written(tmp_path / "a.csv", f'a,b\n{text},1\n"{text}",2\n')
    assert [value["a"] for value in read_on(open_file(path, "csv")).values] == [text, text]


def test_a_zero_byte_makes_a_line_a_reject_in_every_version_of_python(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "a,b\n1,2\n3,\0\n5,6\n")
    found = read_on(open_file(path, "csv"))
    assert found.values == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]
    assert [reject.reason for reject in found.rejects] == ["the line has a zero byte"]
