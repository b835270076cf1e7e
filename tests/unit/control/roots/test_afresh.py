from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.control.roots.afresh import refuse_foreign
from millwheel.control.roots.root import IDENTITY, Root
from millwheel.errors import SetupError


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    root = Root.open(str(tmp_path / "root"), "p")
    yield root
    root.close()


def results(folder: Path, owner: str) -> None:
    (folder / ".millwheel").mkdir(parents=True)
    (folder / ".millwheel" / "results-of").write_text(owner)


def test_a_root_with_its_own_results_may_be_emptied(root: Root, tmp_path: Path) -> None:
    results(root.path / "out" / "day=1", str(root.identity))
    results(tmp_path / "beside", "q-1")
    (root.path / "notes.txt").write_text("mine")
    refuse_foreign(root, [tmp_path / "beside", tmp_path])


def test_another_root_inside_is_told_with_its_place(root: Root) -> None:
    inner = root.path / "deep" / "other"
    inner.mkdir(parents=True)
    (inner / IDENTITY).write_text('{"pipeline": "q", "instance": "1"}')
    with pytest.raises(
        SetupError, match=r"deep/other in the root .* belongs to another run \(q-1\)"
    ):
        refuse_foreign(root, [])


@pytest.mark.parametrize("place", ["", "out"])
def test_results_of_another_run_are_told_with_it(root: Root, place: str) -> None:
    results(root.path / place, "q-2")
    with pytest.raises(SetupError, match=r"belongs to another run \(q-2\)"):
        refuse_foreign(root, [])


def test_what_the_new_run_reads_may_not_lie_in_the_root_even_behind_a_link(
    root: Root, tmp_path: Path
) -> None:
    (root.path / "input").mkdir()
    (tmp_path / "link").symlink_to(root.path / "input")
    for needed in (root.path / "input", tmp_path / "link", root.path):
        with pytest.raises(SetupError, match="which would be emptied; give a new --root"):
            refuse_foreign(root, [needed])


def test_a_mark_that_cannot_be_read_names_no_owner(root: Root) -> None:
    results(root.path / "out", "")
    (root.path / "out" / ".millwheel" / "results-of").write_bytes(b"\xff\xfe")
    refuse_foreign(root, [])
