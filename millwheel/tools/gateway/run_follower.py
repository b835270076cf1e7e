"""Follows the run on a root: range tables, workers, named queries. Reconnects whenever the run is
restarted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from millwheel.control.roots.attach import attach, connected
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.pipeline.query_changes import QUERIES_ROLE
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.engine.queries.named_queries import ChangesRead, NamedFollower
from millwheel.engine.queries.names import Catalog
from millwheel.errors import MillwheelError
from millwheel.tools.gateway.owners import Owners

_AGAIN_S = 0.5  # before the next try to find the run: a driver takes longer to start
_log = logging.getLogger("millwheel.gateway")


class FollowedRun:
    """The run on a root, on a thread of its own. ``catalog`` and ``owners`` are replaced when a run
    begins."""

    def __init__(
        self, root: Path, changes: ChangesRead, load: Callable[[str], PipelineSpec] = load_shipped
    ) -> None:
        """Raises SetupError when there was never a run on the root."""
        self._root = root
        self._changes = changes
        self._load = load
        self._over = threading.Event()
        self._lost = threading.Event()
        self._warned = ""
        self._begin()

    def start(self) -> None:
        """Follow the run from now on, until :meth:`stop`."""
        threading.Thread(target=self._run, name="run", daemon=True).start()

    def stop(self) -> None:
        """Stop following."""
        self._over.set()
        self._lost.set()

    def _begin(self) -> None:
        spec = self._load(str(self._root))
        self.catalog = Catalog.of(spec)
        self.owners = Owners(
            frozenset(each.name for each in spec.computations if isinstance(each.work, SlicesSpec))
        )

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
                self._warned = ""
            except MillwheelError as ex:
                self._warn(str(ex))
            # without this thread the gateway would serve outdated owners for ever
            except Exception as ex:
                self._warn(f"the run cannot be followed: {type(ex).__name__}: {ex}")
            self._over.wait(_AGAIN_S)

    def _warn(self, problem: str) -> None:
        if problem != self._warned:  # once, not with each try
            _log.warning("%s", problem)
        self._warned = problem

    def _follow(self) -> None:
        run = attach(self._root)
        self._lost.clear()
        with connected(run) as coordination:
            self._begin()  # a run that was started again may have another pipeline
            named, owners = NamedFollower(self.catalog.named, self._changes), self.owners
            named.begin()
            coordination.on_lost(self._lost.set)
            coordination.watch_tables(owners.table)
            coordination.watch_members("workers", owners.workers)
            coordination.watch_members(QUERIES_ROLE, lambda _: named.changed())
            self._lost.wait()
            named.end()
