"""The handle of a run. The run has a process of its own; the program that started it may do other
work meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from millwheel import errors
from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.terminal import plain
from millwheel.control.roots.root import root_path
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import MillwheelError, PipelineError, SetupError
from millwheel.launch.progress.report import read_progress
from millwheel.launch.progress.summary import Summary
from millwheel.launch.settings import RunSettings
from millwheel.python.handles.driver import RunOutcome, RunState
from millwheel.python.handles.tables import RunResult, StreamFiles

_LINES = 200  # of the driver's output that are kept
_LOOK_S = 0.05  # between checks whether the run is over; Ctrl-C may interrupt them
_NOTHING = Summary(0, 0, 0, 0, 0, 0.0, 0.0)


class RunStatus(msgspec.Struct, frozen=True):
    """The status of a run: its state, a line for people, and the summary so far."""

    state: RunState
    text: str
    summary: Summary


class RunHandle:
    """A run that was started by :meth:`millwheel.Pipeline.start`.

    It ends when its input has ended, when :meth:`stop` is called, and when this program ends. As a
    context manager it is stopped at the end of the block.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: str,
        streams: Mapping[str, StreamFiles | str],
        folder: Path,
        shows: bool,
    ) -> None:
        self.name = name
        self.root = root_path(settings.root_address(name))
        """The folder with everything that the pipeline remembers; the next run continues there."""
        self._streams = streams
        self._folder = folder
        self._outcome: RunOutcome | None = None
        self._asked_to_stop = False
        self._output: deque[str] = deque(maxlen=_LINES)
        ours, theirs = os.pipe()
        command = module_command("millwheel.python.handles.driver", (str(theirs),))
        draws = shows and sys.stderr is not None and sys.stderr.isatty()
        # in a session of its own: Ctrl-C reaches it only through us, as a clean stop
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if draws else subprocess.PIPE,
            start_new_session=True,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already; its end is reported like any other
            self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
            self._process.stdin.flush()
        self._readers = [
            _thread("output of the run", self._pass_on),
            _thread("end of the run", self._listen, ours),
        ]
        if not draws:
            self._readers.append(_thread("words of the run", self._keep_errors, shows))

    # --- how it stands ----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id of its driver."""
        return self._process.pid

    @property
    def done(self) -> bool:
        """Whether it is over, for any reason."""
        return self._process.poll() is not None and not any(
            each.is_alive() for each in self._readers
        )

    def status(self) -> RunStatus:
        """Its status, at most a second old."""
        if self.done:
            outcome = self._end()
            text = f"{self.name}: {outcome.state.value}" + (
                f": {outcome.text[0]}" if outcome.text else ""
            )
            return RunStatus(outcome.state, text, outcome.summary or self._summary())
        noted = read_progress(self.root)
        if noted is None or noted.driver_pid != self.pid:
            return RunStatus(RunState.STARTING, f"{self.name}: starting", _NOTHING)
        return RunStatus(RunState.RUNNING, noted.text, noted.summary)

    @property
    def said(self) -> tuple[str, ...]:
        """The last lines of its driver's output."""
        return tuple(self._output)

    # --- its end ----------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is over. False if it still runs after ``timeout_s``."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done:
            left_s = _LOOK_S if until_s is None else min(_LOOK_S, until_s - time.monotonic())
            if left_s <= 0:
                return False
            try:
                self._process.wait(left_s)
            except subprocess.TimeoutExpired:
                continue
            for reader in self._readers:
                reader.join(left_s)
        return True

    def result(self, timeout_s: float | None = None) -> RunResult:
        """Wait for its end and return its results. Raises the error that ended it, and SetupError
        after ``timeout_s``."""
        if not self.wait(timeout_s):
            raise SetupError(
                f"The run of {self.name!r} still goes on after {timeout_s:g} s; status() shows how"
                " it stands"
            )
        outcome = self._end()
        if outcome.state is RunState.FAILED:
            raise _error(outcome)
        finished = outcome.state is RunState.FINISHED
        return RunResult(outcome.summary or self._summary(), finished, self._streams)

    def stop(self, timeout_s: float = 60.0) -> RunStatus:
        """Shut it down cleanly and wait for its end. A new start on the same root continues it."""
        if not self.done:
            self._asked_to_stop = True
            self._process.send_signal(signal.SIGTERM)
        if not self.wait(timeout_s):
            self.kill()
        return self.status()

    def kill(self) -> None:
        """Kill all of its processes. Nothing that was committed is lost."""
        self._process.kill()
        self.wait()

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.done:
            self.stop()

    def __repr__(self) -> str:
        return f"<RunHandle {self.status().text}>"

    def _repr_html_(self) -> str:
        status = self.status()
        counted = status.summary
        counts = {
            "records in": counted.records_in,
            "records out": counted.records_out,
            "late": counted.late,
        }
        counts["dead letters"] = counted.dead_letters
        cells = f"<tr><th>state</th><td>{escape(status.state.value)}</td></tr>"
        cells += "".join(
            f"<tr><th>{name}</th><td>{count:,}</td></tr>" for name, count in counts.items()
        )
        return f"<table><caption>{escape(status.text)}</caption>{cells}</table>"

    # --- inside -----------------------------------------------------------------------------------

    def _summary(self) -> Summary:
        noted = read_progress(self.root)
        return _NOTHING if noted is None or noted.driver_pid != self.pid else noted.summary

    def _end(self) -> RunOutcome:
        if self._outcome is not None:
            return self._outcome
        words = "\n".join(self._output) or "none"
        code = self._process.returncode
        # before its signal handler was installed
        if self._asked_to_stop and code == -signal.SIGTERM:
            return RunOutcome(RunState.STOPPED)
        text = (
            f"The driver of the run on {self.root} has ended with {code}. Its last words: {words}"
        )
        return RunOutcome(RunState.FAILED, None, "SetupError", (text,))

    def _listen(self, descriptor: int) -> None:
        with open(descriptor, "rb") as pipe:
            data = pipe.read()
        try:
            self._outcome = msgspec.json.decode(data, type=RunOutcome)
        except DAMAGE:
            self._outcome = None  # it was killed before it could report
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _pass_on(self) -> None:
        """Copy the pipeline's output to our own: in a notebook it appears below the cell."""
        for line in _lines(self._process.stdout):
            sys.stdout.write(plain(line))
            sys.stdout.flush()

    def _keep_errors(self, shows: bool) -> None:
        for line in _lines(self._process.stderr):
            self._output.append(line.rstrip("\n"))
            if shows:
                sys.stderr.write(plain(line))


def _thread(name: str, target: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True, name=name)
    thread.start()
    return thread


def _lines(stream: IO[bytes] | None) -> Iterator[str]:
    assert stream is not None
    with stream:
        for line in stream:
            yield line.decode("utf-8", "replace")


def _error(outcome: RunOutcome) -> MillwheelError:
    """The driver's error, as an exception of this process."""
    if outcome.error == "BrokenError":
        return errors.BrokenError(outcome.text[0], outcome.node)
    if outcome.error == "PipelineError":
        return PipelineError(*outcome.text)
    kind = getattr(errors, outcome.error, SetupError)
    error: MillwheelError = kind("\n".join(outcome.text))
    return error
