"""``millwheel scale``."""

from __future__ import annotations

import time

from rich.console import Console

from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.scaling import answer, ask
from millwheel.roots.attaching import attach, find_root, is_driven

_POLL_S = 0.1  # between looks whether the driver has obeyed


def scale(address: str, workers: int, limit_s: float, console: Console) -> None:
    """Ask the driver for another number of workers, and wait until the change has been made or refused.

    Raises SetupError, with the driver's words, when it cannot be, and UnavailableError when it takes too long.
    """
    root = find_root(address)
    attach(root)
    ask(root, workers)
    deadline_s = time.monotonic() + limit_s
    with console.status(f"waiting for {workers} workers"):
        while (found := answer(root)) is None or found.workers != workers:
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"There are not {workers} workers after {limit_s:.0f} s; the run keeps trying. "
                    "`millwheel status` shows the owners, and on Spark a worker needs a free core"
                )
            if not is_driven(root):
                raise UnavailableError(f"The run ended before there were {workers} workers")
            time.sleep(_POLL_S)
    if found.problem:
        raise SetupError(f"There cannot be {workers} workers: {found.problem}")
    console.print("There is 1 worker." if workers == 1 else f"There are {workers} workers.", highlight=False)
