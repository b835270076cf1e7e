from __future__ import annotations

import os
import resource
import subprocess
import sys

import msgspec
import pytest

from millwheel.launch.launchers import warm_messages as m
from millwheel.launch.launchers.warm_messages import ROOM

REQUESTS = [m.Start(1, "mod", ["--a", "b"], "/e", "/o"), m.Signal(1, 9)]
REPORTS = [m.Started(1, 44), m.Ended(1, -9), m.Cold(1, "a thread")]


def test_every_message_is_one_packet_and_comes_whole() -> None:
    ours, theirs = m.line()
    for message in [*REQUESTS, *REPORTS]:
        ours.send(m.encode(message))
    assert [m.decode_request(m.receive(theirs)) for _ in REQUESTS] == REQUESTS
    assert [m.decode_report(m.receive(theirs)) for _ in REPORTS] == REPORTS
    with pytest.raises(BlockingIOError):
        m.receive(theirs)
    ours.close()
    assert m.receive(theirs) == b"", "the other end is gone"
    theirs.close()


def test_a_request_is_no_report() -> None:
    with pytest.raises(msgspec.ValidationError):
        m.decode_report(m.encode(REQUESTS[0]))


def test_what_can_be_read_is_found_also_beyond_a_thousand_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    read, write = os.pipe()
    high = os.dup2(read, 2_000)
    try:
        assert m.ready([high], 0) == set()
        os.write(write, b"x")
        assert m.ready([high], 1) == {high}
    finally:
        for each in (read, write, high):
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_command_line_that_is_too_long_is_cut_off() -> None:
    code = "\n".join(
        (
            (
                "import sys; from pathlib import Path; from"
                " millwheel.launch.launchers.warm_messages import show_as"
            ),
            "assert show_as(['worker', 'x' * 5_000])",
            "print(Path('/proc/self/cmdline').read_bytes().rstrip(b'\\0').decode().split('\\0'))",
        )
    )
    told = subprocess.run(
        [sys.executable, "-c", code, ROOM], capture_output=True, text=True, check=True
    )
    name, argument = eval(told.stdout)
    assert name == "worker"
    assert set(argument) == {"x"}
    assert len(ROOM) <= len(argument) < 5_000
