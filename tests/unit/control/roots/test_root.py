from __future__ import annotations

import os
from pathlib import Path

import pytest

from millwheel.control.roots.root import (
    Root,
    RunInfo,
    read_completed,
    read_run,
    root_path,
    write_atomically,
)
from millwheel.errors import SetupError
from tests.strangers import STRANGER, needs_a_stranger


def test_a_new_root_is_created_and_keeps_its_identity(tmp_path: Path) -> None:
    first = Root.open(str(tmp_path / "deep" / "root"), "ads")
    first.close()
    again = Root.open(str(tmp_path / "deep" / "root"), "ads")
    assert again.identity == first.identity
    assert str(again.identity).startswith("ads-")
    again.close()


def test_two_roots_of_one_pipeline_are_different(tmp_path: Path) -> None:
    one, two = Root.open(str(tmp_path / "1"), "ads"), Root.open(str(tmp_path / "2"), "ads")
    assert one.identity != two.identity
    one.close()
    two.close()


def test_a_root_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    Root.open(str(tmp_path), "ads").close()
    with pytest.raises(SetupError, match="belongs to the pipeline 'ads', not to 'weblog'"):
        Root.open(str(tmp_path), "weblog")


def test_a_folder_with_other_things_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").write_text("sun")
    with pytest.raises(SetupError, match="not empty and is not a root"):
        Root.open(str(tmp_path), "ads")
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.txt"]


def test_a_driver_that_died_while_it_made_the_root_does_not_spoil_it(tmp_path: Path) -> None:
    (tmp_path / "driver.lock").write_text("123")
    (tmp_path / ".identity.json.abcd").write_text("{")
    Root.open(str(tmp_path), "ads").close()


def test_only_one_driver_holds_a_root(tmp_path: Path) -> None:
    first = Root.open(str(tmp_path), "ads")
    with pytest.raises(SetupError, match=f"going on already.*{os.getpid()}"):
        Root.open(str(tmp_path), "ads")
    first.close()
    Root.open(str(tmp_path), "ads").close()


def test_a_file_in_the_place_of_a_root_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be used"):
        Root.open(str(tmp_path / "file"), "ads")


def test_a_damaged_identity_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(SetupError, match="damaged"):
        Root.open(str(tmp_path), "ads")


def test_roots_are_paths_or_uris(tmp_path: Path) -> None:
    assert root_path(f"file://{tmp_path}") == tmp_path
    assert root_path("x") == Path.cwd() / "x"
    assert root_path("s3://bucket/x").parent == Path.cwd() / ".millwheel"
    assert (
        root_path("s3://bucket/x")
        == root_path("s3://bucket/x/?region=eu-1")
        != root_path("s3://bucket/y/x")
    )
    for index in ("hdfs://host/x", "file://relative/x"):
        with pytest.raises(SetupError, match="s3://bucket/prefix"):
            root_path(index)


def test_tools_find_the_run_and_its_summary(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None
    assert read_completed(tmp_path) is None
    root = Root.open(str(tmp_path), "ads")
    info = RunInfo("ads", root.identity.instance, "127.0.0.1:2181", 7, 1.5)
    root.write_run(info)
    root.complete({"records_in": 3})
    assert read_run(tmp_path) == info
    assert root.completed() == read_completed(tmp_path) == {"records_in": 3}
    root.close()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(SetupError, match=r"run\.json cannot be read"):
        read_run(tmp_path)


def test_a_root_is_used_once_a_worker_has_written_a_journal(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path), "ads")
    assert not root.used()
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "FORM").write_text("append")
    assert not root.used()
    (tmp_path / "journal" / "w0-1").mkdir()
    assert root.used()
    root.close()


def test_scratch_is_cleared_without_following_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    root = Root.open(str(tmp_path / "root"), "ads")
    (root.scratch / "link").symlink_to(precious)
    root.clear_scratch()
    assert (precious / "file").read_text() == "kept"
    assert not list(root.scratch.iterdir())
    root.close()


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"one")
    write_atomically(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_root_is_for_its_user_alone_and_who_shares_it_is_named(tmp_path: Path) -> None:
    Root.open(str(tmp_path / "root"), "ads").close()
    assert (tmp_path / "root").stat().st_mode & 0o777 == 0o700
    with pytest.raises(SetupError, match="--group nonesuch"):
        Root.open(str(tmp_path / "other"), "ads", "nonesuch")


@needs_a_stranger()
def test_of_a_root_that_another_user_may_write_a_warning_is_given(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    os.chown(tmp_path / "root", STRANGER, STRANGER)
    said: list[str] = []
    Root.open(str(tmp_path / "root"), "ads", announce=said.append).close()
    assert len(said) == 1
    assert "belongs to another user" in said[0]
    assert "executed as you" in said[0]
