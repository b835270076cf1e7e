"""Why a run stands still, for its terminal: a thread of the driver asks all processes, as
``millwheel status`` does, and reports the reasons that have lasted for ten seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Hashable, Iterator
from pathlib import Path

import msgspec

from millwheel.adapters.grpc.security import Security
from millwheel.adapters.waits import REPORT_AFTER_S
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import Graph
from millwheel.launch.progress.collector import ClusterEntries, standing_now
from millwheel.launch.progress.run_standing import RunStanding, troubles_of
from millwheel.launch.progress.status_watch import StatusWatcher

MOST = 5
"""The most reasons that are reported at once."""


class Lasting:
    """Compares looks at one run. A node whose watermark moves is behind, but does not stand
    still."""

    def __init__(self) -> None:
        self._since_s: dict[Hashable, float] = {}

    def look(self, run: RunStanding, now_s: float) -> tuple[str, ...]:
        """The reasons at ``now_s``, the gravest first."""
        workers = [msgspec.structs.replace(each, slowness=1.0, memory=0.0) for each in run.workers]
        stuck = [worker for worker in workers if any(troubles_of((), [worker]))]
        held = [node for node in run.nodes if any(troubles_of([node], ()))]
        seen: dict[Hashable, float] = {
            ("worker", each.worker, each.answers): now_s for each in stuck
        }
        seen |= {("node", each.node, each.watermark_us): now_s for each in held}
        if not run.workers:
            seen["no worker"] = now_s
        self._since_s = {key: self._since_s.get(key, now_s) for key in seen}
        lasts = {key for key, since_s in self._since_s.items() if now_s - since_s >= REPORT_AFTER_S}
        nodes = [each for each in held if ("node", each.node, each.watermark_us) in lasts]
        reasons = [
            *(wait.in_words() for wait in run.waits),
            *run.deaths,
            *(["no worker has joined"] if "no worker" in lasts else []),
            *troubles_of(
                nodes, [each for each in stuck if ("worker", each.worker, each.answers) in lasts]
            ),
        ]
        return tuple(_first(reasons))


def _first(reasons: list[str]) -> Iterator[str]:
    yield from reasons[:MOST]
    if len(reasons) > MOST:
        yield f"and {len(reasons) - MOST} more: see millwheel status"


_FIRST_S = 4.0  # before the first look: short runs need none
_EVERY_S = 2.0  # between looks: a reason that has lasted for ten seconds is shown within twelve
_log = logging.getLogger(__name__)


class ReasonsOfStandstill:
    """``reasons`` are those of the last look. The loop of the driver never waits for it."""

    def __init__(
        self,
        graph: Graph,
        pipeline: str,
        root: Path,
        watcher: StatusWatcher,
        security: Security | None,
    ) -> None:
        self._graph = graph
        self._pipeline = pipeline
        self._root = root
        self._watcher = watcher
        self._security = security
        self._lasting = Lasting()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="standstill")
        self.reasons: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _follow(self) -> None:
        if self._stop.wait(_FIRST_S):
            return
        while not self._stop.wait(_EVERY_S):
            try:
                self.look(time.monotonic())
            except Exception:  # the run goes on without reasons
                _log.exception("a look at what stands still failed")

    def look(self, now_s: float) -> None:
        """Ask all processes. Blocks for as long as the slowest of them takes."""
        view = self._watcher.latest
        if view is None:
            return
        tables = {NodeName(name): table for name, table in self._watcher.tables.items()}
        cluster = ClusterEntries(tables, dict(self._watcher.entries))
        run = standing_now(self._graph, self._pipeline, self._root, cluster, self._security, view)
        self.reasons = self._lasting.look(run, now_s)
