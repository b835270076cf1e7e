"""``millwheel savepoint`` and ``millwheel stop``."""

from __future__ import annotations

import logging
import time
from enum import Enum
from pathlib import Path
from uuid import uuid4

import msgspec
from rich.console import Console

from millwheel.adapters.ports import Coordination
from millwheel.control.roots.attach import attach, connected, is_driven
from millwheel.control.roots.root import RunInfo, read_completed
from millwheel.control.roots.shipping import load_shipped
from millwheel.control.savepoints.record import SavepointRecord
from millwheel.control.savepoints.restore import note_saved
from millwheel.control.savepoints.take import (
    Savepoint,
    check_folder,
    savepoint_folder,
    sources_ended,
    taken,
)
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.members import STOP, StopRequest
from millwheel.launch.progress.report import summary_lines
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.arguments import chosen_root
from millwheel.tools.cli.status import write_json

_LOOK_S = 0.1  # between looks whether the savepoint stands


class Ending(Enum):
    """The ways to stop a run: as by Ctrl-C, after draining it, or with a savepoint."""

    AT_ONCE = "at once"
    DRAINED = "drained"
    SAVED = "saved"


class SavepointTaken(msgspec.Struct, frozen=True):
    """A savepoint, in ``--json``. ``taken`` is its time (UTC), ``held_ms`` the pause of all shards
    in ms."""

    folder: str
    name: str
    taken: str
    nodes: int
    shards: int
    bytes: int
    held_ms: int


class Stopped(msgspec.Struct, frozen=True):
    """A run that was stopped, in ``--json``. ``summary`` is that of a drained run."""

    root: str
    how: Ending
    savepoint: SavepointTaken | None = None
    summary: Summary | None = None


def savepoint(
    folder: str, root_option: str, patience_s: float, console: Console, as_json: bool = False
) -> None:
    """Take a savepoint of the run on a root; the run continues."""
    root = chosen_root(root_option)
    run = attach(root)
    request = _requested(folder, root, run, False, patience_s)
    with connected(run) as coordination, console.status("coming to rest") as status:
        with taken(request, coordination, status.update) as record:
            pass
    if as_json:
        return write_json(_taken(record, request.folder))
    _report(console, _words(_taken(record, request.folder)))
    return _report(console, "The pipeline continues.")


def stop(
    root_option: str,
    ending: Ending,
    folder: str,
    limit_s: float,
    console: Console,
    as_json: bool = False,
) -> None:
    """Stop the run on a root, and wait until its driver has ended."""
    root = chosen_root(root_option)
    run = attach(root)
    if ending is Ending.SAVED:
        stopped = _stop_saved(root, run, folder, limit_s, console, as_json)
    elif ending is Ending.DRAINED:
        stopped = _stop_drained(root, run, limit_s, console)
    else:
        stopped = _stop_at_once(root, run, limit_s, console)
    if as_json:
        write_json(stopped)
    else:
        _report_stopped(stopped, console)


def _stop_saved(
    root: Path, run: RunInfo, folder: str, limit_s: float, console: Console, as_json: bool
) -> Stopped:
    request = _requested(folder, root, run, True, limit_s)
    with connected(run) as coordination, console.status("coming to rest") as status:
        with taken(request, coordination, status.update) as record:
            saved = _taken(record, request.folder)
            if not as_json:  # now: it stands even if the run does not end in time
                _report(console, _words(saved))
            _ask_to_stop(run, coordination)
            _await_end(root, limit_s)
            note_saved(root, record, request.folder)
    return Stopped(str(root), Ending.SAVED, savepoint=saved)


def _stop_drained(root: Path, run: RunInfo, limit_s: float, console: Console) -> Stopped:
    spec = load_shipped(str(root))
    with connected(run) as coordination, console.status("coming to rest") as status:
        with sources_ended(spec, limit_s, coordination, status.update):
            _await_end(root, limit_s)
    return Stopped(str(root), Ending.DRAINED, summary=_drained(root))


def _stop_at_once(root: Path, run: RunInfo, limit_s: float, console: Console) -> Stopped:
    with connected(run) as coordination, console.status("stopping"):
        _ask_to_stop(run, coordination)
        _await_end(root, limit_s)
    return Stopped(str(root), Ending.AT_ONCE)


def _report_stopped(stopped: Stopped, console: Console) -> None:
    if stopped.savepoint is not None:
        folder = stopped.savepoint.folder
        _report(
            console,
            f"Stopped. To continue: millwheel run PIPELINE --root NEW --from-savepoint {folder}",
        )
    elif stopped.summary is not None:
        _report(
            console,
            "Drained: every record read has been processed to the end, and every window has fired.",
        )
        for line in summary_lines(stopped.summary):
            _report(console, line)
    else:
        _report(
            console,
            f"Stopped. The same `millwheel run` command continues on the root {stopped.root}.",
        )


def _requested(folder: str, root: Path, run: RunInfo, stay: bool, patience_s: float) -> Savepoint:
    request = Savepoint(
        savepoint_folder(folder), root, run, load_shipped(str(root)), stay, patience_s
    )
    check_folder(request.folder, root)
    return request


def _ask_to_stop(run: RunInfo, coordination: Coordination) -> None:
    request = StopRequest(run.instance, run.driver_pid)
    coordination.join(STOP, f"stop-{uuid4().hex[:12]}", msgspec.json.encode(request))


def _await_end(root: Path, limit_s: float) -> None:
    """Wait until no driver holds the root. The request to stop lasts as long as this process."""
    # the run's own ZooKeeper ends with it: no news
    logging.getLogger("millwheel").setLevel(logging.CRITICAL)
    end = time.monotonic() + limit_s
    while is_driven(root):
        if time.monotonic() > end:
            raise UnavailableError(
                f"The run on {root} has not ended within {limit_s:.0f} s; `millwheel status` shows"
                " what it waits for. Run the same command again, perhaps with a longer --timeout"
            )
        time.sleep(_LOOK_S)


def _drained(root: Path) -> Summary:
    done = read_completed(root)
    if done is None:
        raise SetupError(
            f"The run on {root} has ended before it was drained. Start it again with the same"
            " `millwheel run` command, then drain it again"
        )
    return msgspec.convert(done, Summary)


def _taken(record: SavepointRecord, folder: Path) -> SavepointTaken:
    nodes = len({each.node for each in record.shards})
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return SavepointTaken(
        str(folder), record.name, record.taken, nodes, len(record.shards), size, record.held_ms
    )


def _words(result: SavepointTaken) -> str:
    return (
        f"Savepoint {result.folder}: {result.shards} shards of {result.nodes} nodes,"
        f" {result.bytes / 1e6:,.1f} MB; all stood still for {result.held_ms} ms at most."
    )


def _report(console: Console, sentence: str) -> None:
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)
