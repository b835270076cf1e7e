"""Follows the named queries that are set while a pipeline runs."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.engine.queries.named_queries import NamedQueries
from millwheel.errors import MillwheelError

_LOOK_S = 10.0  # between two reads, in case a notification was lost
_log = logging.getLogger("millwheel.queries")


class ChangesRead(Protocol):
    """Reads the named queries that were set while the pipeline runs."""

    def read(self, latest: QueryChanges | None = None) -> QueryChanges:
        """The newest table of changes; ``latest`` itself if nothing has changed since."""


class NamedFollower:
    """Keeps named queries equal to those in the root, on a thread of its own."""

    def __init__(self, named: NamedQueries, changes: ChangesRead) -> None:
        self._named = named
        self._changes = changes
        self._latest: QueryChanges | None = None
        self._news = threading.Event()
        self._over = False

    def begin(self) -> None:
        """Read them once, then follow them until :meth:`end`. If the root does not answer, the
        first read is left to the thread."""
        self._look()
        threading.Thread(target=self._follow, name="named queries", daemon=True).start()

    def changed(self) -> None:
        """They may have changed: read them now (any thread)."""
        self._news.set()

    def end(self) -> None:
        """Stop following."""
        self._over = True
        self._news.set()

    def _follow(self) -> None:
        while not self._over:
            self._news.wait(_LOOK_S)
            self._news.clear()
            self._look()

    def _look(self) -> None:
        try:
            changes = self._changes.read(self._latest)
        except (MillwheelError, OSError) as ex:  # queries known so far stay available
            _log.warning("named queries are not followed: %s", ex)
            return
        if changes is not self._latest:
            self._latest = changes
            for problem in self._named.change(changes):
                _log.warning("%s", problem)
