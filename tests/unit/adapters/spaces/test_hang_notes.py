"""Notes about calls that did not return are there for whoever comes next; a root that fails is a
sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.hang_notes import HangNotes
from millwheel.errors import UnavailableError


def test_what_one_writes_others_read_until_it_is_removed(tmp_path: Path) -> None:
    mine, other = HangNotes(open_space(str(tmp_path))), HangNotes(open_space(str(tmp_path)))
    mine.write("work", b"one")
    mine.write("work", b"two")
    assert sorted(other.read("work").values()) == [b"one", b"two"]
    assert other.read("another") == {}
    for name in other.read("work"):
        other.remove("work", name)
        mine.remove("work", name)
    assert mine.read("work") == {}


def test_when_all_is_processed_nothing_is_left_of_it(tmp_path: Path) -> None:
    notes = HangNotes(open_space(str(tmp_path)))
    for node in ("work", "work", "more"):
        notes.write(node, b"one")
    notes.clear(["given", "work"])
    assert notes.read("work") == {}
    assert len(notes.read("more")) == 1


def test_a_root_that_fails_is_told_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("a file where a folder should be")
    notes = HangNotes(open_space(str(tmp_path)))
    with pytest.raises(UnavailableError, match="write a note"):
        notes.write("work", b"")
    (tmp_path / "hangs").unlink()
    (tmp_path / "hangs").mkdir()
    (tmp_path / "hangs" / "work").mkdir()
    (tmp_path / "hangs" / "work" / "a.json").mkdir()
    with pytest.raises(UnavailableError, match="read the notes"):
        notes.read("work")
