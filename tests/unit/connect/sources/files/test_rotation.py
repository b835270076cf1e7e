"""Files that grow, and are renamed, replaced, truncated, deleted: what is read of them, under which
positions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sources.files.rotation import GENERATION
from tests.fakes.reading import Everything, open_file, read_on

LEAP = 1 << 40


def follow(path: Path, before: Everything | None = None) -> Any:
    """A new reader, which goes on where another one was."""
    reader: Any = open_file(path, follow=True)
    if before is not None:
        reader.resume(before.notes)
    return reader


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.jsonl"
    found.write_text('{"n":1}\n')
    return found


@pytest.mark.parametrize("reopened", [False, True])
def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(path: Path, reopened: bool) -> None:
    reader = follow(path)
    first = read_on(reader)
    assert first.records == [(8, {"n": 1})]
    os.rename(path, path.with_name("old"))
    append(path.with_name("old"), '{"n":2}\n')
    reader = follow(path, first) if reopened else reader
    second = read_on(reader, 8)
    assert second.values == [{"n": 2}]
    path.write_text("")
    assert read_on(reader, 16).next_position == 16
    path.write_text('{"n":3}\n{"n":4}\n')
    assert read_on(reader, 16).records == [(24, {"n": 3}), (32, {"n": 4})]


def test_who_reads_again_across_a_decided_end_finds_the_same_positions(path: Path) -> None:
    """The former file has grown since, and both were renamed: the decision says where it ended."""
    append(path, "half a line")
    reader = follow(path)
    first = read_on(reader)
    assert first.rejects == []
    os.rename(path, path.with_name("old"))
    path.write_text('{"n":3}\n')
    whole = read_on(reader, 8)
    assert whole.rejected == [(19, "half a line")]
    assert whole.records == [(27, {"n": 3})]
    append(path.with_name("old"), " and more\n")
    os.rename(path, path.with_name("older"))
    path.write_text('{"n":5}\n')
    first.decided = whole.decided
    again = read_on(follow(path, first), 8)
    assert (again.rejected, again.records[:1]) == (whole.rejected, whole.records)
    assert again.records[1:] == [(35, {"n": 5})]


def test_what_is_gone_when_it_is_to_be_read_again_is_skipped_up_to_the_decided_end(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = follow(path)
    first = read_on(reader)
    append(path, '{"n":2}\n')
    os.rename(path, path.with_name("old"))
    path.write_text('{"n":3}\n')
    whole = read_on(reader, 8)
    assert whole.values == [{"n": 2}, {"n": 3}]
    path.with_name("old").unlink()
    first.decided = whole.decided
    assert read_on(follow(path, first), 8).records == whole.records[1:]
    assert [
        message for message in caplog.messages if "is gone; its records" in message
    ] == caplog.messages


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("longer", [False, True])
def test_a_truncated_file_is_read_again_from_its_start(
    path: Path, empty: bool, reopened: bool, longer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(path, '{"n":2}\n')
    reader = follow(path)
    first = read_on(reader)
    os.truncate(path, 0)
    if empty:
        for _ in range(3):
            assert read_on(reader, 16).next_position == 16
    lines = [3, 4, 5] if longer else [3]
    append(path, "".join(f'{{"n":{n}}}\n' for n in lines))
    reader = follow(path, first) if reopened else reader
    assert read_on(reader, 16).records == [
        (LEAP + 24 + 8 * index, {"n": n}) for index, n in enumerate(lines)
    ]
    assert len(caplog.messages) == 1 + (empty and reopened)


def test_a_replaced_file_is_known_whatever_it_holds_and_however_long_it_is(path: Path) -> None:
    first = read_on(follow(path))
    path.unlink()
    path.write_text('{"n":7}\n{"n":8}\n')
    assert read_on(follow(path, first), 8).values == [{"n": 7}, {"n": 8}]


def test_a_followed_file_that_is_deleted_waits_for_the_next(path: Path) -> None:
    reader = follow(path)
    assert read_on(reader).next_position == 8
    path.unlink()
    assert read_on(reader, 8).next_position == 8
    path.write_text('{"n":2}\n')
    assert read_on(reader, 8).records == [(16, {"n": 2})]


def test_a_rotation_may_leave_two_names_between_two_looks(path: Path) -> None:
    """What was truncated, written and renamed since the last look is read before the file that has
    its name now."""
    reader = follow(path)
    assert read_on(reader).next_position == 8
    os.truncate(path, 0)
    assert read_on(reader, 8).next_position == 8
    append(path, '{"n":2}\n')
    os.rename(path, path.with_name("old"))
    append(path, '{"n":3}\n')
    assert read_on(reader, 8).values == [{"n": 2}, {"n": 3}]


def test_positions_without_a_note_are_of_the_earlier_form(path: Path) -> None:
    append(path, '{"n":2}\n')
    found = read_on(follow(path), GENERATION + 8)
    assert found.records == [(GENERATION + 16, {"n": 2})]
    os.rename(path, path.with_name("old"))
    path.write_text('{"n":3}\n')
    assert read_on(follow(path, found), GENERATION + 16).records == [(GENERATION + 24, {"n": 3})]
    assert read_on(follow(path), GENERATION + 16).records == [(2 * GENERATION + 8, {"n": 3})]


def test_a_reader_that_stops_at_an_end_gives_what_was_there_and_not_the_next_file(
    path: Path,
) -> None:
    reader = follow(path)
    found = os.stat(path)
    reader.stop_at((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
    append(path, '{"n":2}\n')
    assert read_on(reader).values == [{"n": 1}]
    os.rename(path, path.with_name("old"))
    path.write_text('{"n":3}\n')
    assert read_on(reader, 8).values == []
    assert read_on(reader, 8).next_position == 8


def test_half_a_line_at_an_end_waits_for_whoever_reads_the_rest(path: Path) -> None:
    append(path, '{"n":')
    reader = follow(path)
    found = os.stat(path)
    reader.stop_at((found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))
    append(path, "2}\n")
    first = read_on(reader)
    assert first.records == [(8, {"n": 1})]
    assert read_on(follow(path, first), 8).values == [{"n": 2}]
