"""The driver's loop during a run: deaths, progress, workers' output, the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from millwheel.adapters.processes.output import OutputPump
from millwheel.adapters.processes.supervisor import ProcessEnded, Supervisor
from millwheel.core.pipeline.cluster_view import ClusterView
from millwheel.core.pipeline.graph import Graph
from millwheel.launch.launchers.base import Launcher, WorkerExit
from millwheel.launch.progress.failures import Failures
from millwheel.launch.progress.input_size import Estimate
from millwheel.launch.progress.line import ProgressLine, Speed
from millwheel.launch.progress.status_watch import StatusWatcher
from millwheel.launch.services import Services
from millwheel.launch.stragglers import Stragglers

_STEP_S = 0.02  # between steps of the driver: an ended process is started again after it
_SHOW_INTERVAL_S = 0.25  # between updates of the line of progress


class Watch:
    """Steps the supervisor and shows the progress of the run, and the ``reasons`` why it stands
    still. ``noted`` tells whether the end of a worker was noted in the root, so that the next one
    gets further."""

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
                self._line.say(
                    f"The worker {member.slot} (process {member.pid}) has been declared dead, but"
                    " it still runs: it is killed."
                )
