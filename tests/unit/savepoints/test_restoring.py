"""A new root begins with the shards of a savepoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.errors import SetupError
from millwheel.savepoints import restoring
from millwheel.savepoints.restoring import restore, restored, write_tables
from tests.fakes.coordination import FakeZooKeeper
from tests.unit.savepoints.test_upgrading import SPEC, savepoint


def test_a_new_root_begins_with_the_shards_that_the_pipeline_still_has(tmp_path: Path) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")
    assert restored(root) is None
    restore(record, folder, root, str(root), SPEC)
    assert restored(root) == record
    manifest = FileSnapshots(str(root)).latest("short-0")
    assert manifest is not None
    assert (manifest.token, manifest.last_commit) == (4, 3)
    assert FileSnapshots(str(root)).latest("gone-0") is None
    assert (root / "inputs" / "visits.json").read_text() == "[]"
    coordination = FakeZooKeeper().connect()
    for _ in range(2):
        write_tables(root, coordination, ["source.visits", "short"])
    assert [(t.computation, [(e.owner, e.token) for e in t.shards]) for t in coordination.tables().values()] == [
        ("short", [("", 4)])
    ]


def test_a_root_whose_beginning_was_interrupted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(restoring, "_copy", dies)
    with pytest.raises(KeyboardInterrupt):
        restore(record, folder, root, str(root), SPEC)
    with pytest.raises(SetupError, match="was interrupted"):
        restored(root)


def test_a_damaged_savepoint_is_refused(tmp_path: Path) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")
    blob = next((folder / "snapshots" / "short-0").glob("*CURRENT"))
    blob.write_text("other")
    with pytest.raises(SetupError, match="is damaged"):
        restore(record, folder, root, str(root), SPEC)
