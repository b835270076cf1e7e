"""The list of savepoints that were taken of a root, one line each in its ``savepoints.jsonl``.

The savepoint itself is in a folder elsewhere, which may have been moved or deleted since.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from millwheel.control.savepoints.record import RECORD_FILE, SavepointRecord
from millwheel.core.model.damage import DAMAGE

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
