"""A new root that begins with a savepoint: the copies of its shards become snapshots, its tables
the first tables.

    restoring      exists while the copies are made; a root with it cannot be used
    restored.json  the savepoint's own record, written last

The range tables are in ZooKeeper. They are written at the start of a run, before there is a master,
and once.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from millwheel.adapters.durable_store import open_snapshots
from millwheel.adapters.ports import Coordination
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.connect.sources.base import ROWS
from millwheel.control.roots.inputs import brought_inputs
from millwheel.control.roots.root import write_atomically
from millwheel.control.savepoints.record import (
    RECORD_FILE,
    SavedShard,
    SavepointRecord,
    first_tables,
    read_record,
)
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import ConflictError, CorruptionError, SetupError

_RESTORING, _RESTORED = "restoring", "restored.json"
SAVED_FILE = "SAVED"
"""In a root that was stopped with a savepoint: the savepoint's name, and its folder."""
_TABLES = "restored"


def restored(root: Path) -> SavepointRecord | None:
    """The savepoint that a root began with. Raises SetupError if its restoration was not
    finished."""
    if (root / _RESTORING).exists():
        raise SetupError(
            f"The start of the root {root} from a savepoint was interrupted. Remove the root and "
            "repeat the command with --from-savepoint"
        )
    return read_record(root, _RESTORED) if (root / _RESTORED).exists() else None


def restore(
    record: SavepointRecord, folder: Path, root: Path, address: str, spec: PipelineSpec
) -> None:
    """Fill a new root, given by its folder and its address, with the shards of the nodes that the
    pipeline still has. Raises SetupError if the savepoint is damaged."""
    write_atomically(root / _RESTORING, str(folder).encode())
    graph = build_graph(spec)
    source, target = open_snapshots(str(folder)), open_snapshots(address)
    for shard in record.shards:
        if shard.node in graph.nodes:
            _copy(shard, source, target, root / "scratch" / f"from-savepoint-{shard.shard}", folder)
    (root / "inputs").mkdir(exist_ok=True)
    for stream in spec.streams:
        inputs = folder / "inputs" / f"{stream.name}.json"
        if inputs.exists() and f"source.{stream.name}" in graph.nodes:
            write_atomically(
                root / "inputs" / inputs.name, brought_inputs(stream, spec.folder, inputs)
            )
        rows = inputs.with_suffix(ROWS)
        if rows.exists():
            shutil.copyfile(rows, root / "inputs" / rows.name)
    # In this order: a root with neither file would count as new, and a run would begin on it with
    # the state of some shards and without that of others.
    write_atomically(root / _RESTORED, (folder / RECORD_FILE).read_bytes())
    (root / _RESTORING).unlink()


def _copy(
    shard: SavedShard, source: FileSnapshots, target: FileSnapshots, scratch: Path, folder: Path
) -> None:
    try:
        manifest = source.latest(shard.shard)
        if manifest is None or (manifest.token, manifest.last_commit) != (
            shard.token,
            shard.commit,
        ):
            raise CorruptionError(f"its copy of {shard.shard} does not match {RECORD_FILE}")
        source.restore(manifest, str(scratch))
        for _ in source.unverified():
            pass
        target.publish(shard.shard, shard.token, shard.commit, str(scratch), lambda: None)
    except CorruptionError as error:
        raise SetupError(
            f"The savepoint {folder} is damaged: {error}. Bring it back from a copy"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_tables(root: Path, coordination: Coordination, nodes: Sequence[NodeName]) -> None:
    """Write the range tables of a root that begins with a savepoint, if they do not exist. Runs
    before any master."""
    record = restored(root)
    if record is None or coordination.get(_TABLES) is not None:
        return
    for table in first_tables(record, nodes):
        with suppress(ConflictError):  # an earlier start wrote this table
            coordination.write_table(table)
    # Last: a start that is interrupted before it writes the missing tables again, and one after it
    # must not, because shards that were split since would come back.
    coordination.put_if_absent(_TABLES, record.name.encode())


def note_saved(root: Path, record: SavepointRecord, folder: Path) -> None:
    """Note in a root that its run ended with a savepoint, and continues elsewhere."""
    write_atomically(root / SAVED_FILE, f"{record.name}\n{folder}\n".encode())


def refuse_saved(root: Path) -> None:
    """Raises SetupError for a root whose run continues elsewhere."""
    saved = root / SAVED_FILE
    if saved.exists():
        folder = saved.read_text().splitlines()[1]
        raise SetupError(
            f"The run on {root} was stopped with the savepoint {folder}. Continue with"
            f" --from-savepoint {folder} and a new --root. To continue here, remove {saved}; a run"
            " from that savepoint then needs other output folders"
        )


def former_identity(record: SavepointRecord) -> str:
    """The root whose results a run from this savepoint may extend: the one that was stopped with it
    and not started again; "" if there is none."""
    root = Path(record.root)
    with suppress(OSError):
        if root.is_dir() and not (root / SAVED_FILE).read_text().startswith(f"{record.name}\n"):
            return ""
        return record.identity if record.last else ""
    return ""
