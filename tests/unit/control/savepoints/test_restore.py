"""A new root begins with the shards of a savepoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.control.roots.inputs import brought_inputs
from millwheel.control.savepoints import restore as restore_module
from millwheel.control.savepoints.restore import restore, restored, write_tables
from millwheel.errors import SetupError
from tests.fakes.coordination import FakeZooKeeper
from tests.unit.control.savepoints.test_upgrade import SPEC, savepoint


def test_a_new_root_begins_with_the_shards_that_the_pipeline_still_has(tmp_path: Path) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")
    assert restored(root) is None
    (folder / "inputs" / "visits.rows").write_bytes(b"rows of a table")
    (folder / "inputs" / "others.rows").write_bytes(b"of a stream that is gone")
    restore(record, folder, root, str(root), SPEC)
    assert restored(root) == record
    manifest = FileSnapshots(str(root)).latest("short-0")
    assert manifest is not None
    assert (manifest.token, manifest.last_commit) == (4, 3)
    assert FileSnapshots(str(root)).latest("gone-0") is None
    assert (root / "inputs" / "visits.json").read_text() == "[]"
    assert (root / "inputs" / "visits.rows").read_bytes() == b"rows of a table"
    assert not (root / "inputs" / "others.rows").exists()
    coordination = FakeZooKeeper().connect()
    for _ in range(2):
        write_tables(root, coordination, ["source.visits", "short"])
    assert [
        (t.computation, [(e.owner, e.token) for e in t.shards])
        for t in coordination.tables().values()
    ] == [("short", [("", 4)])]


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        (
            ["../../etc/passwd"],
            "names the input '../../etc/passwd', which the source of 'visits' does not read",
        ),
        (["/etc/passwd"], "names the input '/etc/passwd'"),
        (["secret"], "names the input 'secret'"),
        (["in/.hidden"], "names the input 'in/.hidden'"),
        (["in/deeper/a"], "names the input 'in/deeper/a'"),
        (["in/a\0b"], "names the input"),
        ([""], "names the input ''"),
        (["in/" + "a" * 9_000], "names the input 'in/aaa"),
        (["in/a", "in/a"], "names an input twice"),
        ([7], "is damaged"),
        ("in/a", "is damaged"),
    ],
)
def test_a_savepoint_names_no_input_that_the_pipeline_does_not_read(
    listed: object, problem: str, tmp_path: Path
) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")
    kept = folder / "inputs" / "visits.json"
    names = [{"name": name} for name in listed] if isinstance(listed, list) else listed
    kept.write_text(json.dumps(names))
    with pytest.raises(SetupError, match=re.escape(problem)):
        restore(record, folder, root, str(root), SPEC)
    assert not (root / "inputs" / "visits.json").exists()
    kept.write_text(json.dumps([{"name": "in/a.jsonl"}, {"name": "in"}]))
    assert brought_inputs(SPEC.streams[0], SPEC.folder, kept) == kept.read_bytes()


def test_a_root_whose_beginning_was_interrupted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, root = tmp_path / "saved", tmp_path / "root"
    folder.mkdir()
    root.mkdir()
    record = savepoint(folder, tmp_path / "old")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(restore_module, "_copy", dies)
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
