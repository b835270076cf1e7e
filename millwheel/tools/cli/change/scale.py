"""``millwheel scale``."""

from __future__ import annotations

import time

import msgspec
from rich.console import Console

from millwheel.control.roots.attach import attach, is_driven
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.scale import answer, ask
from millwheel.tools.cli.look.arguments import chosen_root
from millwheel.tools.cli.look.status import write_json

_POLL_S = 0.1  # between looks whether the driver has obeyed


class Scaled(msgspec.Struct, frozen=True):
    """The output of ``--json`` once the requested number of workers is reached."""

    root: str
    workers: int


def scale(
    address: str, workers: int, limit_s: float, console: Console, as_json: bool = False
) -> None:
    """Request another number of workers from the driver, and wait until the change has been made or
    refused.

    Raises SetupError with the driver's reason when the request is refused, and UnavailableError
    when the change takes too long.
    """
    root = chosen_root(address)
    attach(root)
    ask(root, workers)
    deadline_s = time.monotonic() + limit_s
    with console.status(f"waiting for {workers} workers"):
        while (outcome := answer(root)) is None or outcome.workers != workers:
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"There are not {workers} workers after {limit_s:.0f} s; the run keeps trying. "
                    "`millwheel status` shows the owners, and on Spark a worker needs a free core"
                )
            if not is_driven(root):
                raise UnavailableError(f"The run ended before there were {workers} workers")
            time.sleep(_POLL_S)
    if outcome.problem:
        raise SetupError(f"There cannot be {workers} workers: {outcome.problem}")
    if as_json:
        return write_json(Scaled(str(root), workers))
    console.print(
        "There is 1 worker." if workers == 1 else f"There are {workers} workers.", highlight=False
    )
    return None
