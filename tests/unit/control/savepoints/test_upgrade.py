from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_journals
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.orders import Standing
from millwheel.control.savepoints.record import (
    RECORD_FILE,
    SavepointRecord,
    encode_record,
    saved_shards,
)
from millwheel.control.savepoints.restore import former_identity, note_saved, refuse_saved
from millwheel.control.savepoints.upgrade import (
    blueprint_bytes,
    changed_since,
    check_same_root,
    check_savepoint,
    may_keep_state,
)
from millwheel.core.formats import store_layout as layout
from millwheel.core.formats.codec import FULL_STOP, Commit, encode_batch, encode_commit
from millwheel.core.model.failures import DEAD_LETTER
from millwheel.core.model.names import FIRST_TOKEN, groups_of, shard_name
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec, SinkSpec, SourceSpec, StreamSpec
from millwheel.core.pipeline.work import StepKind, StepSpec
from millwheel.errors import PipelineError, SetupError
from tests.computations import computation_spec


def by(name: str) -> KeySpec:
    return KeySpec(KeyKind.FIELD, (name,))


STEPS = (StepSpec(StepKind.MAP, "code:f"),)
SPEC = PipelineSpec(
    "visits",
    (StreamSpec("visits", SourceSpec("files", {"path": "in", "format": "jsonl"}), "time"),),
    (computation_spec("short", (InputSpec("visits", by("page")),), ("shorter",), steps=STEPS),),
    (SinkSpec("shorter", "files", {"path": "out"}),),
    "/nowhere",
    "visits.yaml",
)
OTHER_KEY = replace(
    SPEC, computations=(replace(SPEC.computations[0], inputs=(InputSpec("visits", by("user")),)),)
)
OTHER_DELAY = replace(SPEC, streams=(replace(SPEC.streams[0], max_delay_us=7),))
OTHER_FORMAT = replace(
    SPEC, streams=(replace(SPEC.streams[0], source=SourceSpec("files", {"path": "in"})),)
)


def keep(root: Path) -> None:
    (root / "pipeline").mkdir()
    (root / "pipeline" / ".blueprint.json").write_bytes(blueprint_bytes(SPEC))


def test_a_root_goes_on_with_what_is_free_and_says_it(tmp_path: Path) -> None:
    said: list[str] = []
    check_same_root(tmp_path, SPEC, said.append)
    keep(tmp_path)
    check_same_root(tmp_path, SPEC, said.append)
    assert said == []
    check_same_root(tmp_path, OTHER_DELAY, said.append)
    assert said == [
        "Changed: source.visits: its watermark settings have changed, from the next record on."
    ]


def test_a_root_refuses_what_takes_a_savepoint_and_what_cannot_be_and_says_what_to_do(
    tmp_path: Path,
) -> None:
    keep(tmp_path)
    with pytest.raises(
        PipelineError, match=r"(?s)migrates: short: its key .* --from-savepoint FOLDER and"
    ):
        check_same_root(tmp_path, OTHER_KEY, print)
    with pytest.raises(
        PipelineError,
        match=r"(?s)refused: source.visits: option 'format' .*Undo the refused changes",
    ):
        check_same_root(tmp_path, OTHER_FORMAT, print)


def test_a_savepoint_takes_what_migrates_and_refuses_the_rest(tmp_path: Path) -> None:
    said: list[str] = []
    check_savepoint(blueprint_of(SPEC), tmp_path, OTHER_KEY, said.append)
    assert "it keeps no state by key" in said[0]
    with pytest.raises(PipelineError, match=r"visits\.yaml cannot continue from the savepoint"):
        check_savepoint(blueprint_of(SPEC), tmp_path, OTHER_FORMAT, said.append)


def test_another_program_on_a_root_is_told_by_what_differs(tmp_path: Path) -> None:
    assert changed_since(tmp_path, SPEC) == []  # a new root
    keep(tmp_path)
    assert changed_since(tmp_path, SPEC) == []
    forgiving = replace(SPEC.computations[0], on_error=DEAD_LETTER)
    assert changed_since(tmp_path, replace(SPEC, computations=(forgiving,))) == [
        "  changed: its settings"
    ]
    [line] = changed_since(tmp_path, OTHER_DELAY)
    assert "its watermark settings have changed" in line


def savepoint(folder: Path, root: Path) -> SavepointRecord:
    """A savepoint of one shard of ``short`` at commit 3, and one of a node that the new pipeline
    has not."""
    tables = [
        RangeTable(n, (ShardEntry(f"{n}-0", KeyRange(0, SPACE), "w1", 4),))
        for n in ("short", "gone")
    ]
    cut = {"short-0": Standing(4, 3), "gone-0": Standing(4, 5)}
    for shard, standing in cut.items():
        checkpoint = folder / "checkpoint" / shard
        checkpoint.mkdir(parents=True)
        (checkpoint / "CURRENT").write_text(shard)
        FileSnapshots(str(folder)).publish(shard, 4, standing.commit, str(checkpoint), lambda: None)
    (folder / "inputs").mkdir()
    (folder / "inputs" / "visits.json").write_text("[]")
    record = SavepointRecord(
        "s1", "visits-1", str(root), "today", True, 5, blueprint_of(SPEC), saved_shards(tables, cut)
    )
    (folder / RECORD_FILE).write_bytes(encode_record(record))
    return record


def test_a_root_that_was_stopped_with_a_savepoint_leaves_its_results_to_whoever_goes_on_from_it(
    tmp_path: Path,
) -> None:
    folder, old = tmp_path / "saved", tmp_path / "old"
    folder.mkdir()
    record = savepoint(folder, old)
    assert former_identity(record) == "visits-1"  # its root is not here any more
    old.mkdir()
    assert former_identity(record) == ""  # it may go on
    refuse_saved(old)
    note_saved(old, record, folder)
    assert former_identity(record) == "visits-1"
    with pytest.raises(SetupError, match="was stopped with the savepoint"):
        refuse_saved(old)
    note_saved(old, replace_name(record, "s2"), folder)
    assert former_identity(record) == ""


def replace_name(record: SavepointRecord, name: str) -> SavepointRecord:
    return SavepointRecord(
        name, record.identity, record.root, record.taken, True, 5, record.blueprint, record.shards
    )


def committed(root: Path, worker: str, node: str, *puts: tuple[bytes, bytes]) -> None:
    """A journal with one commit of a shard of ``node``."""
    writer = open_journals(str(root)).create(worker)
    writer.commit([encode_commit(Commit(shard_name(node, 0), FIRST_TOKEN, 1, list(puts), []))])
    writer.close()


def pending(stream: str) -> tuple[bytes, bytes]:
    batch = encode_batch(Batch(stream, [1], [0], ["k"], ["v"]))
    return layout.PENDING + layout.number8(1), layout.pack(["a-0", [batch]])


@pytest.mark.parametrize(
    "family", [layout.STATE, layout.TIMER, layout.WINDOW, layout.SLICE, layout.COLUMNS]
)
def test_a_node_that_stored_something_of_a_key_keeps_state_and_others_do_not(
    tmp_path: Path, family: bytes
) -> None:
    committed(tmp_path, "w1", "failing", (layout.META, b""), (layout.CHANNEL + b"x", b""))
    committed(tmp_path, "w2", "counting", (family + b"x", b""))
    keeps = may_keep_state(str(tmp_path))
    assert keeps("counting")
    assert not keeps("failing")


def test_a_computation_that_has_failed_on_every_record_keeps_nothing(tmp_path: Path) -> None:
    seen = [
        (family + b"x", b"")
        for family in (layout.SEEN, layout.RUNS, layout.POSITION, layout.JUDGED)
    ]
    committed(tmp_path, "w1", "failing", *seen, pending("dead_letters"))
    assert not may_keep_state(str(tmp_path))("failing")


def test_a_node_to_which_groups_are_on_their_way_keeps_state(tmp_path: Path) -> None:
    committed(tmp_path, "w1", "reading", pending(groups_of("summing")))
    keeps = may_keep_state(str(tmp_path))
    assert keeps("summing")
    assert not keeps("reading")


def test_a_full_stop_behind_the_commits_says_nothing_of_any_node(tmp_path: Path) -> None:
    writer = open_journals(str(tmp_path)).create("w1")
    writer.commit(
        [
            encode_commit(
                Commit(shard_name("counting", 0), FIRST_TOKEN, 1, [(layout.STATE + b"x", b"")], [])
            )
        ]
    )
    writer.commit([FULL_STOP])
    writer.close()
    keeps = may_keep_state(str(tmp_path))
    assert keeps("counting")
    assert not keeps("failing")


def test_a_journal_that_cannot_be_read_may_hold_state_of_any_node(tmp_path: Path) -> None:
    writer = open_journals(str(tmp_path)).create("w1")
    writer.commit([b"no commit"])
    writer.close()
    assert may_keep_state(str(tmp_path))("failing")
