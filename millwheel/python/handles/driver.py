"""``python -m millwheel.python.handles.driver``: the driver of a run that a Python program
controls by a handle.

It reads its settings from the first line of standard input, and shuts down cleanly when standard
input ends, because the program has ended then, for any reason. The outcome is written to the file
descriptor named on the command line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from enum import Enum

import msgspec
from rich.console import Console

from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.secret_values import masking
from millwheel.adapters.terminal import Terminal
from millwheel.errors import BrokenError, MillwheelError, PipelineError
from millwheel.launch.head_start import children_for
from millwheel.launch.progress.summary import Summary
from millwheel.launch.settings import RunSettings

_LONGEST_TEXT = 20_000  # characters of an error: a pipe holds more without a reader


class RunState(str, Enum):
    """The state of a run. ``FINISHED``: all bounded input is processed. ``STOPPED``: it can be
    continued on the same root."""

    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    CAUGHT_UP = "caught up"
    STOPPED = "stopped"
    FAILED = "failed"


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run ended. ``error`` is the name of a class in :mod:`millwheel.errors`, "" for none;
    ``text`` and ``node`` are its arguments."""

    state: RunState
    summary: Summary | None = None
    error: str = ""
    text: tuple[str, ...] = ()
    node: str = ""


def failed(error: MillwheelError) -> RunOutcome:
    """The outcome of a run that ended with an error."""
    texts = error.problems if isinstance(error, PipelineError) else (str(error),)
    node = error.node if isinstance(error, BrokenError) else ""
    room = _LONGEST_TEXT // max(1, len(texts))
    return RunOutcome(
        RunState.FAILED,
        None,
        type(error).__name__,
        tuple(text[:room] for text in texts[:100]),
        node,
    )


def driven(settings: RunSettings, console: Console) -> RunOutcome:
    """Run to the end, in this process."""
    with children_for(settings) as children:
        from millwheel.launch.driver import Driver, RunEnd

        states = {RunEnd.COMPLETE: RunState.FINISHED, RunEnd.CAUGHT_UP: RunState.CAUGHT_UP}
        driver = Driver(settings, console, children)
        try:
            driver.run()
        except MillwheelError as error:
            return failed(error)
    return RunOutcome(states.get(driver.ended, RunState.STOPPED), driver.summary)


def _stop_with_parent() -> None:
    """Stop when standard input ends: the process with the handle is gone."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Read the settings, run, write the outcome."""
    begin_process()
    descriptor = int(sys.argv[1])
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        settings = msgspec.json.decode(stdin.readline(), type=RunSettings)
    threading.Thread(target=_stop_with_parent, daemon=True, name="parent-watch").start()
    sys.stdout, sys.stderr = masking(sys.stdout), masking(sys.stderr)
    outcome = driven(settings, Terminal(stderr=True))
    with suppress(BrokenPipeError):  # the reader is gone
        os.write(descriptor, msgspec.json.encode(outcome))
    sys.stdout.flush()
    os._exit(0)  # a thread still reads standard input


if __name__ == "__main__":
    main()
