"""Web server logs: fields, times, requests that are none, and lines that are none."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.sources.files.apache import log_time_us
from millwheel.errors import RecordError
from tests.fakes.reading import open_file, read_on

LINE = (
    r'1.2.3.4 - bob [17/May/2015:10:05:03 +0000] "GET /a?b=c HTTP/1.1" 200 203023 "http://x/"'
    r' "Agent \"7\" é"'
)
AGENT = r"Agent \"7\" é"
TIME = 1431857103000000


def read_line(tmp_path: Path, line: str) -> dict[str, object]:
    path = tmp_path / "access.log"
    path.write_text(line + "\n")
    (value,) = read_on(open_file(path, "apache_combined")).values
    return dict(value)


def test_a_line_becomes_its_fields(tmp_path: Path) -> None:
    assert read_line(tmp_path, LINE) == {
        "client": "1.2.3.4",
        "ident": "-",
        "user": "bob",
        "time": TIME,
        "request": "GET /a?b=c HTTP/1.1",
        "method": "GET",
        "path": "/a?b=c",
        "protocol": "HTTP/1.1",
        "status": 200,
        "size": 203023,
        "referrer": "http://x/",
        "agent": AGENT,
    }


@pytest.mark.parametrize(
    ("request_text", "parts"),
    [
        ("GET / HTTP/1.0", ("GET", "/", "HTTP/1.0")),
        ("GET /a b HTTP/1.0", ("GET", "/a b", "HTTP/1.0")),
        ("GET /old", ("GET", "/old", "")),
        ("-", ("", "-", "")),
        ("", ("", "", "")),
        (r"\x16\x03\"", ("", r"\x16\x03\"", "")),
    ],
)
def test_a_request_is_taken_apart_as_far_as_it_is_one(
    tmp_path: Path, request_text: str, parts: tuple[str, str, str]
) -> None:
    value = read_line(
        tmp_path, f'h - - [17/May/2015:10:05:03 +0000] "{request_text}" 400 - "-" "-"'
    )
    assert (value["method"], value["path"], value["protocol"]) == parts
    assert value["size"] == 0


def test_the_common_format_has_neither_referrer_nor_agent(tmp_path: Path) -> None:
    value = read_line(tmp_path, 'h - two words [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 5')
    assert (value["user"], value["referrer"], value["agent"]) == ("two words", "", "")


@pytest.mark.parametrize(
    ("cut", "referrer", "agent"),
    [
        (0, "http://x/", AGENT),
        (1, "http://x/", AGENT),
        (9, "http://x/", "Agent"),
        (14, "http://x/", ""),
        (20, "", ""),
    ],
)
def test_a_line_cut_off_after_its_size_is_a_record(
    tmp_path: Path, cut: int, referrer: str, agent: str
) -> None:
    value = read_line(tmp_path, LINE[: len(LINE) - cut])
    assert (value["size"], value["referrer"], value["agent"]) == (203023, referrer, agent)


def test_what_follows_the_agent_is_ignored(tmp_path: Path) -> None:
    assert read_line(tmp_path, f'{LINE} 1234 "vhost"')["agent"] == AGENT


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_any_time_is_what_python_says(when: datetime, offset: int) -> None:
    aware = when.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=offset)))
    assert log_time_us(aware.strftime("%d/%b/%Y:%H:%M:%S %z")) == round(
        aware.timestamp() * 1_000_000
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "17/Foo/2015:10:05:03 +0000",
        "32/May/2015:10:05:03 +0000",
        "17/May/2015:25:05:03 +0000",
        "2015-05-17T10:05Z",
    ],
)
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="the time"):
        log_time_us(text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hello", "there is no [time]"),
        ("h - - [17/May/2015:10:05:03 +0000] GET", 'there is no "request" after column 7'),
        (LINE[:60], "after the request in column"),
        (LINE.replace("May", "Mai"), "is not of the form"),
    ],
)
def test_a_line_that_is_none_is_rejected_with_a_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = tmp_path / "access.log"
    path.write_text(f"{LINE}\n{line}\n{LINE}\n")
    found = read_on(open_file(path, "apache_combined"))
    assert len(found.values) == 2
    assert [reject.raw for reject in found.rejects] == [line]
    assert reason in found.rejects[0].reason


def test_a_schema_and_declared_fields_hold_for_logs_too(tmp_path: Path) -> None:
    class Hit(msgspec.Struct):
        path: str
        status: int

    path = tmp_path / "access.log"
    path.write_text(LINE + "\n")
    assert read_on(open_file(path, "apache_combined", schema=Hit)).values == [Hit("/a?b=c", 200)]
    columns = read_on(
        open_file(path, "apache_combined", fields={"status": "int", "path": "str"}), columns=True
    )
    assert columns.values == [{"status": 200, "path": "/a?b=c"}]
    wrong = read_on(open_file(path, "apache_combined", fields={"status": "str"}))
    assert [reject.reason for reject in wrong.rejects] == [
        "field 'status' is int 200, but is declared as str"
    ]
