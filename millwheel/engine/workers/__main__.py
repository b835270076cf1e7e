"""``python -m millwheel.engine.workers``: one worker process, for as long as it lives."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from millwheel.adapters.clock import SystemClock
from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.durable_store import open_journals, open_snapshots, open_space
from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.adapters.processes.logs import LogFormat, set_up
from millwheel.adapters.processes.output import LogFiles
from millwheel.adapters.processes.signals import stop_on_signals
from millwheel.adapters.secret_values import (
    FOLDER_VARIABLE,
    MaskingStream,
    masked_bytes,
    masking,
    on_first_secret,
)
from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.spaces.root_notes import HangNotes, QueryTable, ReplayOrders
from millwheel.adapters.stores.growing_store import GrowingStores
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.connect.kinds import build_sink, build_source
from millwheel.control.roots.root import identity_of
from millwheel.control.roots.shipment import fetched
from millwheel.control.roots.shipping import load_shipped
from millwheel.engine.workers.bundle.work_note import DoingNote
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.machine import machine_of
from millwheel.engine.workers.process import (
    WorkerProcess,
    WorkerSettings,
    WorkerStorage,
    clean_scratch,
)
from millwheel.errors import (
    CorruptionError,
    ExhaustedError,
    FencedError,
    InvariantError,
    MillwheelError,
    PipelineError,
    SetupError,
    UnavailableError,
)

_SESSION_TIMEOUT_S = 2.25
"""A worker that was silent for this long, while ZooKeeper was there, counts as dead: it is replaced
within three seconds, and a false alarm costs a restart."""
_LOST_AFTER_S = 20.0
"""How long ZooKeeper may be down before a worker ends. The seal of its journal protects its acks
meanwhile."""
_CONNECT_S = 60.0
"""The driver found ZooKeeper running. It may have died since, and take some time to come back."""


def main(
    root: Annotated[str, typer.Option(help="root of the pipeline, shared by all workers")],
    zookeeper: Annotated[
        str, typer.Option(help="hosts of ZooKeeper, with the chroot: host:port/chroot")
    ],
    pipeline: Annotated[str, typer.Option(help="name of the pipeline")],
    slot: Annotated[int, typer.Option(help="number of this worker's slot")],
    scratch: Annotated[str, typer.Option(help="folder for local stores; may vanish at any time")],
    listen: Annotated[
        str, typer.Option(help="host:port to serve on; port 0 takes a free one")
    ] = "127.0.0.1:0",
    security: Annotated[
        str, typer.Option(help='folder with certificates and token; "": none')
    ] = "",
    queries: Annotated[str, typer.Option(help='host:port to answer queries on; "": none')] = "",
    secrets: Annotated[
        str, typer.Option(help='folder with a file for each secret; "": the environment has them')
    ] = "",
    log_format: Annotated[LogFormat, typer.Option(help="how logs are written")] = LogFormat.TEXT,
) -> None:
    """Serve the shards that the master assigns, until stopped, fenced or killed."""
    die_with_parent()
    begin_process(root)
    if secrets:
        os.environ[FOLDER_VARIABLE] = secrets
    sys.stdout, sys.stderr = masking(sys.stdout), masking(sys.stderr)  # logs lie in the root
    set_up(log_format, pipeline, f"worker-{slot}")
    logs = LogFiles()
    on_first_secret(partial(_mask_descriptors, logs))
    faulthandler.enable(2, all_threads=False)  # a native crash has last words, too
    doing = DoingNote(clean_scratch(scratch))
    settings = WorkerSettings(
        slot, scratch, listen, queries=queries, on_hang=partial(_hung, logs), doing=doing
    )
    code = _run(root, zookeeper, pipeline, security, settings)
    logs.drained()
    os._exit(code)


def _mask_descriptors(logs: LogFiles) -> None:
    """Mask the output of C code and child processes, too, because there is a secret."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        assert isinstance(stream, MaskingStream)
        stream.flush()
        direct = logs.behind_a_mask(number, masked_bytes)
        stream.stream = open(direct, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    faulthandler.enable(sys.stderr.fileno(), all_threads=False)


def _run(root: str, zookeeper: str, pipeline: str, security: str, settings: WorkerSettings) -> int:
    code, doing = 1, settings.doing
    assert doing is not None
    try:
        settings = replace(
            settings, security=load_security(security, "worker"), machine=machine_of(os.environ)
        )
        folder = fetched(root, f"{settings.scratch}/shipped")
        sinks = partial(build_sink, identity=identity_of(folder))
        assembly = Assembly(
            load_shipped(folder), folder, SystemClock(), Factories(build_source, sinks)
        )
        coordination = open_coordination(
            zookeeper,
            pipeline,
            _SESSION_TIMEOUT_S,
            lost_after_s=_LOST_AFTER_S,
            connect_timeout_s=_CONNECT_S,
            security=security,
        )
        scratch = settings.scratch
        storage = WorkerStorage(
            open_journals(root),
            open_snapshots(root, scratch),
            GrowingStores(RocksStores(scratch), PosixFiles()),
            open_snapshots,
            HangNotes(open_space(root)),
            ReplayOrders(open_space(root)),
            QueryTable(open_space(root)),
        )
        process = WorkerProcess(settings, assembly, coordination, storage)
        stop_on_signals(process.stop)
        process.run()
        coordination.close()
        code = Exit.STOPPED
    except FencedError as ex:
        _print(f"fenced: {ex}")
        code = Exit.FENCED
    except (SetupError, PipelineError, CorruptionError) as ex:
        _print(str(ex))
        code = Exit.BAD_CONFIG
    except (UnavailableError, ExhaustedError, InvariantError) as ex:
        doing.back(b"")  # no record is to blame
        _print(str(ex))
    except MillwheelError as ex:
        _print(str(ex))
    except OSError:
        doing.back(b"")
        logging.exception("worker of slot %d ends", settings.slot)
    except Exception:
        logging.exception("worker of slot %d ends", settings.slot)
    return int(code)


def _hung(logs: LogFiles) -> None:
    sys.stderr.flush()
    logs.drained()
    os._exit(Exit.HUNG)


def _print(sentence: str) -> None:
    sys.stderr.write(f"worker: {sentence}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    typer.run(main)
