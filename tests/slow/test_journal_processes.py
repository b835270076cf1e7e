"""Journals between real processes: a writer that is killed, or sealed while it writes at full
speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.journal.journals import FileJournals
from tests.fakes.buckets import BUCKETS, BucketServer

_WRITER = """
import sys
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.journal.journals import FileJournals
from millwheel.errors import FencedError
root, form, incarnation = sys.argv[1:]
writer = FileJournals(root, form, segment_bytes=20_000, space=open_space(root)).create(incarnation)
number = 0
try:
    while True:
        number += 1
        writer.commit([b"%d" % number + bytes(100)] * 3)
        print(number, flush=True)
except FencedError:
    print("fenced", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["append", "create", *BUCKETS])
@pytest.mark.parametrize("killed", [False, True])
def test_whatever_was_acked_is_before_the_end_and_a_writer_behind_it_is_fenced(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, killed: bool
) -> None:
    """In a folder in both forms, and in every kind of object store."""
    root, form = str(tmp_path), place
    if place not in ("append", "create"):
        server: BucketServer = request.getfixturevalue(place)
        server.fail()
        root, form = server.root(), "create"
    journals = FileJournals(root, form, space=open_space(root))
    for life in range(3):
        incarnation = f"w{life}"
        command = [sys.executable, "-c", _WRITER, root, form, incarnation]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(50 + 37 * life)]
            if killed:
                process.kill()
            end = journals.seal(incarnation)
            lines += process.stdout.read().split()
        if not killed:
            assert lines.pop() == "fenced"
        acked = int(lines[-1])
        found = [int(entry[:-100]) for entry in journals.read(incarnation, end)]
        assert found == [number for number in range(1, len(found) // 3 + 1) for _ in range(3)]
        assert acked <= len(found) // 3 <= acked + 1
        assert journals.seal(incarnation) == end
