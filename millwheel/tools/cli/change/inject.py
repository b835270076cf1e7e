"""``millwheel inject``."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import BinaryIO

from rich.console import Console

from millwheel.adapters.grpc.injection_client import InjectionClient, InjectionResult
from millwheel.adapters.grpc.security import load_security
from millwheel.control.roots.attach import attach, connected
from millwheel.errors import SetupError
from millwheel.tools.cli.arguments import chosen_root
from millwheel.tools.cli.status import write_json
from millwheel.tools.client.inject import (
    DOUBLES_AGAIN,
    SAFE_AGAIN,
    Identified,
    Injecting,
    line_batches,
)
from millwheel.tools.client.injector import follow, id_field


def inject(
    address: str,
    stream: str,
    file: str,
    field: str,
    name: str,
    console: Console,
    as_json: bool = False,
) -> None:
    """Send every line of ``file`` ("-": standard input) to ``stream`` of the run on the root at
    ``address``. Lines have ids by ``field``, else by ``name`` and number."""
    root = chosen_root(address)
    run = attach(root)
    field = field or id_field(str(root), stream)
    with ExitStack() as stack:
        source = stack.enter_context(_opened(file))
        coordination = stack.enter_context(connected(run))
        client = InjectionClient(load_security(run.security, "client"))
        stack.callback(client.close)
        again = SAFE_AGAIN if field or name else DOUBLES_AGAIN
        sending = Injecting(stream, client, follow(coordination, stream), again=again)
        stack.callback(sending.close)
        status = stack.enter_context(console.status("injecting"))
        done, identified = InjectionResult(), Identified(field, name)
        for lines in line_batches(source):
            done += sending.send(identified.records(lines))
            status.update(_words(done))
    _report(done, console, as_json)


def _report(done: InjectionResult, console: Console, as_json: bool) -> None:
    if as_json:
        return write_json(
            {"accepted": done.accepted, "duplicates": done.duplicates, "rejected": done.rejected}
        )
    return console.print(_words(done), markup=False, highlight=False, soft_wrap=True)


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return open(file, "rb")
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}") from error


def _words(done: InjectionResult) -> str:
    return (
        f"{done.accepted:,} records accepted, {done.duplicates:,} duplicates, {done.rejected:,}"
        " dead-lettered"
    )
