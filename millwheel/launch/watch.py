"""The driver's loop during a run: deaths, progress, workers' output, the end.

The driver receives the exit of each worker, wherever it ran, with its running work. It notes in the
root when a worker has ended of itself, for the next owners of its shards. A kill from outside, a
lost host or a lost lease is not noted, so it never costs a record.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millwheel.adapters.processes.exits import crash_line
from millwheel.adapters.processes.output import OutputPump
from millwheel.adapters.processes.supervisor import (
    ProcessEnded,
    Supervisor,
    ended_of_itself,
    exit_words,
)
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.core.pipeline.graph import ClusterView, Graph
from millwheel.engine.workers.bundle.hangs import Hang, encode_hang
from millwheel.engine.workers.bundle.work_note import running
from millwheel.errors import MillwheelError
from millwheel.launch.launchers.base import Launcher, WorkerExit
from millwheel.launch.members import JoinedWorker
from millwheel.launch.progress.failures import Failures
from millwheel.launch.progress.input_size import Estimate
from millwheel.launch.progress.line import ProgressLine, Speed
from millwheel.launch.progress.status_watch import StatusWatcher
from millwheel.launch.services import Services

_STEP_S = 0.02  # between steps of the driver: an ended process is started again after it
_SHOW_INTERVAL_S = 0.25  # between updates of the line of progress


class Watch:
    """Steps the supervisor and shows the progress of the run, and the ``reasons`` why it stands
    still. ``noted`` is true if the end of a worker was noted in the root, so that the next one gets
    further."""

    def __init__(
        self,
        pipeline: str,
        graph: Graph,
        supervisor: Supervisor,
        services: Services,
        line: ProgressLine,
        logs: Path,
        failures: Failures,
        estimate: Estimate | None = None,
        each_node: bool = False,
        reasons: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.noted: Callable[[WorkerExit], bool] = lambda gone: False
        self._reasons = reasons
        self._graph = graph
        self._supervisor = supervisor
        self._services = services
        self._line = line
        self._pump = OutputPump(logs)
        self._speed = Speed(pipeline, graph, estimate, each_node)
        self._stragglers = Stragglers()
        self._show_due_s = 0.0
        self._failures = failures

    def until_drained(
        self,
        launcher: Launcher,
        watcher: StatusWatcher,
        stop: threading.Event,
        check: Callable[[], None],
        caught_up: Callable[[ClusterView | None], ClusterView | None] = lambda view: None,
    ) -> ClusterView | None:
        """The final state of the graph, once it has drained or ``caught_up``; None when ``stop``
        was set first.

        Raises SetupError when a process cannot be kept alive or when ``check`` raises it, and
        BrokenError when too many calls fail.
        """
        while not stop.wait(_STEP_S):
            now_s = time.monotonic()
            check()
            self._answer_deaths(launcher, now_s)
            self._end_stragglers(launcher, watcher, now_s)
            view = watcher.latest
            drained = view is not None and view.drained(self._graph)
            stands = caught_up(view)
            self._failures.look(view, now_s, drained or stands is not None)
            if drained or stands is not None:
                return view if drained else stands
            if now_s >= self._show_due_s:
                self._show_due_s = now_s + _SHOW_INTERVAL_S
                self.pass_on_output()
                text = self._speed.text(view, self._supervisor.restarts(), now_s)
                self._line.show(
                    "\n".join([text, *(f"  ! {reason}" for reason in self._reasons())]), now_s
                )
        return None

    def pass_on_output(self) -> None:
        """Print what workers printed."""
        while data := self._pump.take():
            with self._line.hidden():
                sys.stdout.buffer.write(data)
                sys.stdout.flush()

    def _answer_deaths(self, launcher: Launcher, now_s: float) -> None:
        for gone in launcher.exits():
            self._stragglers.ended(gone.slot)
            name = f"worker {gone.slot}"
            if self.noted(gone):
                self._supervisor.gets_further(name)
            self._supervisor.ended(
                ProcessEnded(name, gone.code, gone.lived_s, gone.last_words), now_s
            )
        for ended in self._services.ended():
            self._supervisor.ended(ended, now_s)
        self._supervisor.step(now_s)

    def _end_stragglers(self, launcher: Launcher, watcher: StatusWatcher, now_s: float) -> None:
        for member in self._stragglers.step(watcher.workers, now_s):
            if launcher.kill(member.slot, member.pid):
                self._line.announce(
                    f"The worker {member.slot} (process {member.pid}) has been declared dead, but"
                    " it still runs: it is killed."
                )


class Deaths:
    """Writes the notes. ``announce`` gets a sentence about each record that was alone in
    progress."""

    def __init__(self, notes: HangNotes, announce: Callable[[str], None]) -> None:
        self._notes = notes
        self._announce = announce

    def ended(self, exit: WorkerExit) -> bool:
        """A worker has ended. True if a single record has certainly ended it: the next one gets
        further."""
        doing = running(exit.remains.doing)
        if doing is None or not ended_of_itself(exit.code, exit.remains.lacked_memory):
            return False
        words, where = exit_words(exit.code), crash_line(exit.last_words)
        # Not the note's own shard alone: it may be split or merged before the note is read.
        hang = Hang(
            doing.node, doing.shard, doing.token, doing.what, doing.key, doing.mark, where,
            ended=words,
            records=doing.records, lo=doing.lo, hi=doing.hi,
        )  # fmt: skip
        try:
            self._notes.write(doing.node, encode_hang(hang))
        except MillwheelError as ex:  # the next death is noted
            self._announce(f"The death of worker {exit.slot} could not be noted: {ex}")
            return False
        if doing.mark:
            self._announce(
                f"The worker {exit.slot} {words} on a {doing.what} of key {doing.key} of"
                f" {doing.node}."
            )
        return bool(doing.mark)


GRACE_S = 10.0
"""The time for a worker to end by itself once it has ceased to be a member."""


@dataclass(slots=True)
class Stragglers:
    """How long each worker has been gone. Pure: the time is an argument."""

    present: frozenset[JoinedWorker] = frozenset()
    over: set[JoinedWorker] = field(default_factory=set)
    gone_since_s: dict[JoinedWorker, float] = field(default_factory=dict)

    def ended(self, slot: int) -> None:
        """The process of a slot has ended: stop watching for workers of this slot."""
        self.over.update(member for member in self.present if member.slot == slot)
        self.gone_since_s = {
            member: since for member, since in self.gone_since_s.items() if member.slot != slot
        }

    def step(self, members: frozenset[JoinedWorker], now_s: float) -> list[JoinedWorker]:
        """Take the present members. Returns, once each, the processes that should have ended by
        now."""
        gone = self.present - members
        self.gone_since_s.update(dict.fromkeys(gone - self.over, now_s))
        self.over -= gone
        self.present = members
        due = [
            member for member, since_s in self.gone_since_s.items() if now_s - since_s >= GRACE_S
        ]
        for member in due:
            del self.gone_since_s[member]
        return due
