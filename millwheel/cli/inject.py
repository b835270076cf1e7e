"""``millwheel inject``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import BinaryIO

from rich.console import Console

from millwheel.adapters.grpc.injection_client import InjectionClient, InjectionResult
from millwheel.adapters.grpc.security import load_security
from millwheel.core.model.names import NodeName
from millwheel.errors import SetupError
from millwheel.launch.injecting import DOUBLES_AGAIN, SAFE_AGAIN, Identified, Injecting, Look, line_batches
from millwheel.launch.progress.polling import addresses
from millwheel.ports import Coordination
from millwheel.roots.attaching import LiveMembers, attach, connected, find_root
from millwheel.roots.shipped import load_shipped

_KIND = "injection"


def inject(place: str, stream: str, file: str, field: str, name: str, console: Console) -> None:
    """Send every line of ``file`` ("-": standard input) to ``stream`` of the run on the root at ``place``. Lines have
    ids by ``field``, else by ``name`` and number."""
    root = find_root(place)
    run = attach(root)
    field = field or check_stream(str(root), stream)
    with ExitStack() as stack:
        source = stack.enter_context(_opened(file))
        coordination = stack.enter_context(connected(run))
        client = InjectionClient(load_security(run.security, "client"))
        stack.callback(client.close)
        again = SAFE_AGAIN if field or name else DOUBLES_AGAIN
        sending = Injecting(stream, client, _follow(coordination, stream), again=again)
        stack.callback(sending.close)
        status = stack.enter_context(console.status("injecting"))
        done, identified = InjectionResult(), Identified(field, name)
        for lines in line_batches(source):
            done += sending.send(identified.records(lines))
            status.update(_words(done))
    console.print(_words(done), markup=False, highlight=False, soft_wrap=True)


def check_stream(root: str, stream: str) -> str:
    """The field of the stream's ``id``, "" when it declares none. Raises SetupError unless the pipeline takes records
    for ``stream`` from outside."""
    ids = {s.name: s.id for s in load_shipped(root).streams if s.source is not None and s.source.kind == _KIND}
    if stream not in ids:
        names = f"it accepts {', '.join(ids)}" if ids else "none of its streams has `source: {injection: {}}`"
        raise SetupError(f"The pipeline accepts no injected records for {stream!r}: {names}")
    return ids[stream]


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}") from error


def _follow(coordination: Coordination, stream: str) -> Look:
    workers = LiveMembers(coordination, "workers")
    return lambda: (coordination.tables().get(NodeName(f"source.{stream}")), addresses(workers.now()))


def _words(done: InjectionResult) -> str:
    return f"{done.accepted:,} records accepted, {done.duplicates:,} duplicates, {done.rejected:,} dead-lettered"
