"""The sink that prints."""

from __future__ import annotations

import errno
import io

import pytest

from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.connect.sinks.stdout import build_stdout
from millwheel.errors import SetupError, UnavailableError


class BrokenPipe(io.StringIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def flush(self) -> None:
        raise OSError(self.number, "broken")


BATCH = SinkBatch(0, "1-1", [SinkRecord("k", {"a": "é"}, 5), SinkRecord("k", 7, 6)])


def test_lines_are_printed_when_they_are_published() -> None:
    out = io.StringIO()
    writer = build_stdout({}, out).open("sink.alerts-0", 1)
    committable = writer.prepare(BATCH)
    assert out.getvalue() == ""
    writer.publish(committable)
    assert out.getvalue() == '{"a":"é"}\n{"value":7}\n'


def test_lines_that_are_shown_at_once_are_an_option() -> None:
    assert build_stdout({"at_once": True}).shows_at_once
    assert not build_stdout({}).shows_at_once


def test_another_process_prints_what_a_crash_kept_back() -> None:
    committable = build_stdout({}, io.StringIO()).open("sink.alerts-0", 1).prepare(BATCH)
    out = io.StringIO()
    build_stdout({}, out).open("sink.alerts-0", 2).publish(committable)
    assert len(out.getvalue().splitlines()) == 2


def test_key_and_timestamp_on_request() -> None:
    writer = build_stdout({"with_key": True, "with_timestamp": "true"}, io.StringIO()).open(
        "s-0", 1
    )
    assert writer.prepare(BATCH).splitlines()[1] == b'{"key":"k","timestamp":6,"value":7}'


def test_a_reader_that_left_and_a_full_disk_are_told_apart() -> None:
    with pytest.raises(SetupError, match="nobody reads there any more"):
        build_stdout({}, BrokenPipe(errno.EPIPE)).publish(b"x\n")
    with pytest.raises(UnavailableError, match="free some space"):
        build_stdout({}, BrokenPipe(errno.ENOSPC)).publish(b"x\n")
