"""Why a run stands still, for its terminal: a thread of the driver asks all processes, as
``millwheel status`` does."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from millwheel.adapters.grpc.security import Security
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import Graph
from millwheel.launch.progress.status_watch import StatusWatcher
from millwheel.launch.standing.collector import KnownCluster, standing_now
from millwheel.launch.standing.standstill import Lasting

_FIRST_S = 4.0  # before the first look: short runs need none
_EVERY_S = 2.0  # between looks: what has lasted for ten seconds is told within twelve
_log = logging.getLogger(__name__)


class ReasonsOfStandstill:
    """``reasons`` are those of the last look. The loop of the driver waits for none of it."""

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
        cluster = KnownCluster(tables, dict(self._watcher.entries))
        run = standing_now(self._graph, self._pipeline, self._root, cluster, self._security, view)
        self.reasons = self._lasting.look(run, now_s)
