"""Follows a run for the page on a thread of its own: reads the state once a second while a page is
open.

The coordinator reports changes of workers and range tables by itself, so the time line has no gaps
while no page is open.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.metrics.client import METRICS, ROWS, fetched
from millwheel.control.roots.attach import attach, connected, is_driven
from millwheel.control.roots.root import RunInfo, read_completed, read_run
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.graph import Graph, build_graph
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import MillwheelError
from millwheel.launch.members import read_members
from millwheel.launch.progress.collector import ClusterEntries, ask
from millwheel.launch.progress.report import read_progress
from millwheel.launch.progress.status_watch import LEADER_ROLE, MASTER_ROLE
from millwheel.tools.ui.documents import LiveRun, live_run
from millwheel.tools.ui.page_state import Shown
from millwheel.tools.ui.readings import Rates, readings_in

LOOK_S = 1.0
"""Between two polls of the run."""
FRESH_MS = 3_000
"""A live state is shown without a new poll while it is younger than this."""
_PATIENCE_S = 5.0  # for the first poll after a silence
_INTEREST_S = 15.0  # after the last request of any page; a page asks more often
_AGAIN_S = 0.5  # before the next try to find the run
_log = logging.getLogger("millwheel.ui")


class FollowedPage:
    """The run on a root."""

    def __init__(self, root: Path, load: Callable[[str], PipelineSpec] = load_shipped) -> None:
        """Raises SetupError when there was never a run on the root."""
        self._root = root
        self._load = load
        self._over = threading.Event()
        self._lost = threading.Event()
        self._due = threading.Event()
        self._following = False
        self._cluster = ClusterEntries()
        self._security: Security | None = None
        self._rates = Rates()
        self._looked_s = 0.0
        spec = load(str(root))
        self.shown = Shown(spec, _quiet(root, spec, "starting"))

    def start(self) -> None:
        """Follow the run from now on, until :meth:`stop`."""
        threading.Thread(target=self._run, name="page", daemon=True).start()

    def stop(self) -> None:
        """Stop following."""
        self._over.set()
        self._leave()

    def look(self) -> None:
        """Note that a page is open: read the state of the run for a while, after a silence at
        once."""
        now_s = time.monotonic()
        silent, self._looked_s = now_s - self._looked_s >= _INTEREST_S, now_s
        if silent:
            self._due.set()

    def live(self) -> LiveRun:
        """The state of the run, from the last :data:`FRESH_MS`. After a silence of all pages this
        waits for a new one, for at most :data:`_PATIENCE_S`; without it, ``problem`` gives the age
        of the other values."""
        earliest_ms = _now_ms() - FRESH_MS
        if not self._following or self.shown.since(earliest_ms, _PATIENCE_S):
            return self.shown.live
        live = self.shown.live
        age_s = (_now_ms() - live.at_ms) / 1000
        return msgspec.structs.replace(
            live, problem=live.problem or f"The run has not answered for {age_s:.0f} s"
        )

    def rows(self) -> list[msgspec.Raw]:
        """Rows that workers have taken since the last call (:class:`.SeenRow`). The first call
        returns none."""
        texts = fetched(self._served(), ROWS, self._security).values()
        return [row for text in texts for row in msgspec.json.decode(text, type=list[msgspec.Raw])]

    def _served(self) -> dict[str, str]:
        return {
            name: worker.metrics
            for name, worker in self._cluster.joined().items()
            if worker.metrics
        }

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            problem = ""
            try:
                if is_driven(self._root):
                    self._follow()
            except MillwheelError as ex:
                problem = str(ex)
            except Exception as ex:
                _log.exception("the run could not be followed")
                problem = f"the run could not be followed: {ex}"
            self._rest(problem)
            self._over.wait(_AGAIN_S)

    def _rest(self, problem: str) -> None:
        """Show that the run is not followed now."""
        state = "starting"
        if not is_driven(self._root):
            state, problem = "stopped" if read_completed(self._root) is None else "complete", ""
        before = self.shown.live
        if (before.state, before.problem) != (state, problem):
            quiet = _quiet(self._root, self.shown.spec, state)
            self.shown.show(
                msgspec.structs.replace(
                    quiet, problem=problem, nodes=before.nodes, edges=before.edges
                )
            )

    def _follow(self) -> None:
        run = attach(self._root)
        self._security = load_security(run.security, "client")
        self._lost.clear()
        self._cluster, self._rates = ClusterEntries(), Rates()
        self.shown.begin(self._load(str(self._root)))
        graph = build_graph(self.shown.spec)
        self._note(f"the driver is process {run.driver_pid}")
        with connected(run) as coordination:
            coordination.on_lost(self._leave)
            coordination.watch_members(LEADER_ROLE, self._leaders)
            coordination.watch_members(MASTER_ROLE, self._masters)
            coordination.watch_members("workers", self._workers)
            coordination.watch_tables(self._table)
            self._following = True
            try:
                while self._waited():
                    if not self._goes_on(run):
                        return self._note("the run has ended")
                    if time.monotonic() - self._looked_s < _INTEREST_S:
                        self._ask(graph, run.pipeline)
            finally:
                self._following = False
        return None

    def _waited(self) -> bool:
        """Wait until the next poll is due. False: the connection is lost, or the page ends."""
        self._due.wait(LOOK_S)
        self._due.clear()
        return not self._lost.is_set()

    def _leave(self) -> None:
        self._lost.set()
        self._due.set()

    def _goes_on(self, run: RunInfo) -> bool:
        now = read_run(self._root)
        return is_driven(self._root) and now is not None and now.driver_pid == run.driver_pid

    def _note(self, words: str) -> None:
        self.shown.timeline.add("run", words, _now_ms())
        self.shown.notify()

    def _leaders(self, members: Mapping[str, bytes]) -> None:
        self._cluster.leaders = dict(members)

    def _masters(self, members: Mapping[str, bytes]) -> None:
        self._cluster.masters = dict(members)

    def _workers(self, members: Mapping[str, bytes]) -> None:
        self._cluster.workers = dict(members)
        slots = {name: each.slot for name, each in read_members(members).items()}
        self.shown.timeline.workers(slots, _now_ms())
        self.shown.notify()

    def _table(self, table: RangeTable) -> None:
        before = self._cluster.tables.get(NodeName(table.computation))
        self._cluster.tables = {**self._cluster.tables, NodeName(table.computation): table}
        owners = {str(entry.shard): str(entry.owner) for entry in table.shards}
        former = () if before is None else before.shards
        gone = {str(entry.shard) for entry in former if entry.shard not in owners}
        planned = {str(entry.shard) for entry in former if entry.next_owner}
        self.shown.timeline.table(owners, gone, _now_ms(), planned)
        self.shown.notify()

    def _ask(self, graph: Graph, pipeline: str) -> None:
        cluster, shown = self._cluster, self.shown
        try:
            standing = ask(graph, pipeline, self._root, cluster, self._security)
        except MillwheelError as ex:
            return shown.show(msgspec.structs.replace(shown.live, at_ms=_now_ms(), problem=str(ex)))
        texts = fetched(self._served(), METRICS, self._security)
        readings = {name: readings_in(text) for name, text in texts.items()}
        rates = self._rates.take(readings, time.monotonic())
        progress = read_progress(self._root)
        text = "" if progress is None else progress.text
        return shown.show(
            live_run(standing, shown.drawing, cluster.tables, readings, rates, _now_ms(), text)
        )


def _quiet(root: Path, spec: PipelineSpec, state: str) -> LiveRun:
    """A run that cannot be followed, from the last notes of its driver."""
    progress = read_progress(root)
    summary = None if progress is None else progress.summary
    return LiveRun(
        spec.name,
        str(root),
        state,
        _now_ms(),
        0 if summary is None else summary.records_in,
        dead_letters=0 if summary is None else summary.dead_letters,
        progress="" if progress is None else progress.text,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
