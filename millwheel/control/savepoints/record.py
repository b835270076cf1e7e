"""The contents of a savepoint's folder:

savepoint.json           the record; written last, so a folder without it is not a savepoint
snapshots/<shard>/       the copies of the shards, in the form that snapshots have in a root
pipeline/                the pipeline as it was shipped to the workers
inputs/                  the lists of files of bounded sources, and rows of held tables

A root lists the savepoints that were taken of it in its ``savepoints.jsonl``, one line each. Their
folders may have been moved or deleted since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from xxhash import xxh3_128_hexdigest

from millwheel.control.savepoints.blueprint import Blueprint
from millwheel.control.savepoints.orders import Standing
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import NO_WORKER, NodeName, ShardName, Token
from millwheel.core.model.range_table import RangeTable, ShardEntry, checked_name, edge_of
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import MillwheelError, SetupError

RECORD_FILE = "savepoint.json"
KEPT_FOLDERS = ("pipeline", "inputs")
SAVEPOINT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,255}")
_FORMAT = 1  # Fixed: of the format


class SavedShard(msgspec.Struct, frozen=True):
    """One shard: its range (hex), and its state."""

    node: NodeName
    shard: ShardName
    lo: str
    hi: str
    token: Token
    commit: int


class SavepointRecord(msgspec.Struct, frozen=True):
    """A savepoint. ``identity`` names its root. ``last`` means that the run was stopped with it, so
    that the run's results are exactly those up to the savepoint. ``held_ms`` is how long all shards
    stood still. ``named`` has, by node, the number in the name of the next shard that a split or
    merge makes. Names are never reused, because consumers remember the channels of former
    shards."""

    name: str
    identity: str
    root: str
    taken: str
    last: bool
    held_ms: int
    blueprint: Blueprint
    shards: list[SavedShard]
    named: dict[str, int] = {}
    format: int = _FORMAT


class _Sealed(msgspec.Struct):
    checksum: str
    savepoint: msgspec.Raw


def saved_shards(tables: Sequence[RangeTable], cut: Mapping[str, Standing]) -> list[SavedShard]:
    """The shards of a cut with their ranges."""
    return [
        SavedShard(
            table.computation,
            entry.shard,
            f"{entry.range.lo:x}",
            f"{entry.range.hi:x}",
            cut[entry.shard].token,
            cut[entry.shard].commit,
        )
        for table in tables
        for entry in table.shards
    ]


def first_tables(record: SavepointRecord, nodes: Sequence[NodeName]) -> list[RangeTable]:
    """The range tables with which a new root begins: the same shards, without owners."""
    tables: list[RangeTable] = []
    for node in nodes:
        shards = [each for each in record.shards if each.node == node]
        entries = tuple(
            ShardEntry(
                each.shard, KeyRange(int(each.lo, 16), int(each.hi, 16)), NO_WORKER, each.token
            )
            for each in shards
        )
        if entries:
            tables.append(RangeTable(node, entries, named=record.named.get(node, 0)))
    return tables


def encode_record(record: SavepointRecord) -> bytes:
    """JSON with its own checksum."""
    body = msgspec.json.encode(record)
    return msgspec.json.format(
        msgspec.json.encode(_Sealed(xxh3_128_hexdigest(body), msgspec.Raw(body))), indent=1
    )


def _check(record: SavepointRecord) -> None:
    """A savepoint may come from elsewhere: its names become parts of paths, and its numbers tables.
    Raises ValueError, or an error of a table."""
    if not SAVEPOINT_NAME.fullmatch(record.name):
        raise ValueError(f"{record.name[:140]!r} is not a name of a savepoint")
    for node in (*record.named, *record.blueprint.nodes):
        checked_name(node)
    for shard in record.shards:
        checked_name(shard.node)
        checked_name(shard.shard)
        if min(shard.token, shard.commit) < 0 or edge_of(shard.lo) >= edge_of(shard.hi):
            raise ValueError(f"the shard {shard.shard} has a number that none can have")
    names = [shard.shard for shard in record.shards]
    if len(set(names)) < len(names) or min(record.named.values(), default=0) < 0:
        raise ValueError("two shards have one name, or could get one")
    first_tables(record, [each.node for each in record.shards])


def read_record(folder: Path, name: str = RECORD_FILE) -> SavepointRecord:
    """The savepoint in ``folder``. Raises SetupError, with a sentence, if there is none or it is
    damaged."""
    file = folder / name
    try:
        sealed = msgspec.json.decode(file.read_bytes(), type=_Sealed)
        record = msgspec.json.decode(sealed.savepoint, type=SavepointRecord)
        whole = (
            xxh3_128_hexdigest(msgspec.json.encode(record)) == sealed.checksum
            and record.format == _FORMAT
        )
        _check(record)
    except FileNotFoundError:
        hint = " It was not finished: take another one." if (folder / "snapshots").is_dir() else ""
        raise SetupError(
            f"{folder} contains no savepoint (there is no {RECORD_FILE}).{hint} `millwheel"
            " savepoint FOLDER` takes one"
        ) from None
    except (OSError, MillwheelError, *DAMAGE) as error:
        raise SetupError(
            f"{file} cannot be used ({error}): bring it back from a copy, or take another one"
        ) from error
    if not whole:
        raise SetupError(
            f"{file} fails its checksum: bring it back from a copy, or take another savepoint"
        )
    return record


NOTES_FILE = "savepoints.jsonl"


class NotedSavepoint(msgspec.Struct, frozen=True):
    """A savepoint that was taken of this root. ``last``: the run was stopped with it."""

    folder: str
    name: str
    taken: str
    shards: int
    held_ms: int
    last: bool = False


def note(root: Path, folder: Path, record: SavepointRecord) -> None:
    """Add a savepoint to the list of its root. The list is a help only, so nothing waits for the
    disk."""
    noted = NotedSavepoint(
        str(folder), record.name, record.taken, len(record.shards), record.held_ms, record.last
    )
    with open(root / NOTES_FILE, "ab") as file:
        file.write(msgspec.json.encode(noted) + b"\n")


def noted_savepoints(root: Path) -> list[tuple[NotedSavepoint, bool]]:
    """The savepoints of a root, the newest first, and whether each is still where it was. A line
    that was cut off by a crash is left out."""
    try:
        lines = (root / NOTES_FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    savepoints = []
    for line in lines:
        try:
            each = msgspec.json.decode(line, type=NotedSavepoint)
        except DAMAGE:
            continue
        savepoints.append((each, Path(each.folder, RECORD_FILE).exists()))
    return savepoints[::-1]
