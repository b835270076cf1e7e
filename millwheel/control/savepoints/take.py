"""Takes a savepoint of a running pipeline: from the check of its folder to the file that makes it
valid."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from millwheel.adapters.ports import Coordination
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.control.roots.root import RunInfo, root_path, write_atomically
from millwheel.control.savepoints.blueprint import blueprint_of
from millwheel.control.savepoints.orders import Phase
from millwheel.control.savepoints.record import (
    KEPT_FOLDERS,
    RECORD_FILE,
    SavepointRecord,
    encode_record,
    note,
    saved_shards,
)
from millwheel.control.savepoints.runtime import Taker
from millwheel.control.savepoints.state import SavepointRequest, Taking
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import SetupError

_STEP_S = 0.005  # between steps of a savepoint, while the pipeline waits
_WORDS = {
    Phase.REST: "finishing records in flight",
    Phase.HOLD: "standing still",
    Phase.SAVE: "copying",
    Phase.FINISH: "ending the sources",
}


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The folder, and the pipeline to save. ``stay``: the pipeline will be stopped in that
    state."""

    folder: Path
    root: Path
    run: RunInfo
    spec: PipelineSpec
    stay: bool = False
    patience_s: float = 60.0


def savepoint_folder(folder: str) -> Path:
    """The folder of a savepoint, absolute. Raises SetupError for an object store."""
    if in_bucket(folder):
        raise SetupError(
            f"{folder} is not a folder: a savepoint needs a folder that all workers and this"
            " command can reach"
        )
    return root_path(folder)


def check_folder(folder: Path, root: Path) -> None:
    """Raises SetupError unless the folder is new or empty, and outside the root, which may be
    deleted earlier."""
    if folder.resolve().is_relative_to(root.resolve()):
        raise SetupError(
            f"{folder} lies in the root {root}: a savepoint must outlive it; choose a folder"
            " elsewhere"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SetupError(
                f"The folder {folder} is not empty; give a new or empty folder for the savepoint"
            )
    except OSError as error:
        raise SetupError(
            f"The savepoint cannot be written to {folder}: {error.strerror or error}"
        ) from error


@contextmanager
def taken(
    savepoint: Savepoint, coordination: Coordination, announce: Callable[[str], None]
) -> Iterator[SavepointRecord]:
    """Take a savepoint. With ``stay`` the pipeline stands still as long as the context lasts.

    Raises UnavailableError if it cannot be taken; the pipeline then continues.
    """
    name = f"s{secrets.token_hex(6)}"
    nodes = tuple(build_graph(savepoint.spec).nodes)
    taking = Taking(
        SavepointRequest(
            name, str(savepoint.folder), nodes, savepoint.stay, int(savepoint.patience_s * 1e6)
        )
    )
    taker = Taker(taking, coordination)
    try:
        _step(taker, announce)
        record = SavepointRecord(
            name=name,
            identity=f"{savepoint.run.pipeline}-{savepoint.run.instance}",
            root=str(savepoint.root),
            taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            last=savepoint.stay,
            held_ms=taking.held_us // 1000,
            blueprint=blueprint_of(savepoint.spec),
            shards=saved_shards(taking.tables, taking.cut),
            named={table.computation: table.named for table in taking.tables},
        )
        _finish(savepoint, record)
        note(savepoint.root, savepoint.folder, record)
        yield record
    finally:
        taker.release()


@contextmanager
def sources_ended(
    spec: PipelineSpec,
    patience_s: float,
    coordination: Coordination,
    announce: Callable[[str], None],
) -> Iterator[None]:
    """Bring the pipeline to rest, then end its sources there. The order lasts as long as the
    context.

    Raises UnavailableError if the pipeline does not come to rest; it then continues.
    """
    nodes = tuple(build_graph(spec).nodes)
    request = SavepointRequest(
        f"f{secrets.token_hex(6)}", "", nodes, patience_us=int(patience_s * 1e6), finish=True
    )
    taker = Taker(Taking(request), coordination)
    try:
        _step(taker, announce)
        yield
    finally:
        taker.release()


def _step(taker: Taker, announce: Callable[[str], None]) -> None:
    while not taker.step(time.monotonic_ns() // 1000):
        if taker.taking.order is not None:
            announce(_WORDS[taker.taking.order.phase])
        time.sleep(_STEP_S)


def _finish(savepoint: Savepoint, record: SavepointRecord) -> None:
    """Write everything but the shards, and last the record that makes it a savepoint."""
    try:
        for name in KEPT_FOLDERS:
            if (savepoint.root / name).is_dir():
                shutil.copytree(savepoint.root / name, savepoint.folder / name)
        write_atomically(savepoint.folder / RECORD_FILE, encode_record(record))
    except OSError as error:
        raise SetupError(
            f"The savepoint cannot be written to {savepoint.folder}: {error.strerror or error}"
        ) from error
