"""Where a worker answers queries by the Redis protocol, and how that server follows the run."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from millwheel.adapters.grpc.security import Security, check_listen, is_loopback
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import MillwheelError
from millwheel.queries.asked import AskedQueries
from millwheel.queries.cluster import ClusterMap
from millwheel.queries.commands import QueryService
from millwheel.queries.names import Catalog
from millwheel.queries.peers.link import Links
from millwheel.queries.server import QueryServer

_LOOK_S = 10.0  # between two looks for changes, where the news got lost
_log = logging.getLogger(__name__)


class ChangesRead(Protocol):
    """Where named queries that were set while the pipeline runs are read."""

    def read(self, known: QueryChanges | None = None) -> QueryChanges:
        """The newest ones; ``known`` itself if it is that."""


class Queried:
    """The server of queries of one worker."""

    def __init__(
        self, listen: str, me: str, spec: PipelineSpec, security: Security | None, changes: ChangesRead
    ) -> None:
        check_listen(listen, security)
        self._changes = changes
        self._known: QueryChanges | None = None
        self._news = threading.Event()
        self._listen = listen
        self._catalog = Catalog.of(spec)
        self._cluster = ClusterMap(me, _asked_first(spec))
        self._security = None if is_loopback(listen.rpartition(":")[0]) else security

    def begin(self, post: Callable[[AskedQueries], None], check: Callable[[], None], clock: Callable[[], int]) -> str:
        """Serve from now on; the address. Raises SetupError when it cannot be had."""
        token, tls, links = "", None, Links()
        if self._security is not None:
            from millwheel.adapters.metrics.tls import client_context, server_context

            token, tls = self._security.token, server_context(self._security)
            links = Links(token, client_context(self._security))
        service = QueryService(self._catalog, self._cluster, clock, token)
        server = QueryServer(self._listen, service, post, check, tls, links)
        self._look()
        threading.Thread(target=self._follow, name="named queries", daemon=True).start()
        server.start()
        return server.address

    def changed(self) -> None:
        """Named queries may have changed (any thread)."""
        self._news.set()

    def _follow(self) -> None:
        while True:
            self._news.wait(_LOOK_S)
            self._news.clear()
            self._look()

    def _look(self) -> None:
        try:
            found = self._changes.read(self._known)
        except (MillwheelError, OSError) as ex:  # what is known goes on to be asked
            _log.warning("named queries are not followed: %s", ex)
            return
        if found is not self._known:
            self._known = found
            for problem in self._catalog.named.change(found):
                _log.warning("%s", problem)

    def table(self, table: RangeTable) -> None:
        """A range table has changed."""
        self._cluster.follow(table)

    def workers(self, members: Mapping[str, bytes]) -> None:
        """Workers came and went."""
        facts = {name: json.loads(data) for name, data in members.items()}
        self._cluster.addresses = {name: each["queries"] for name, each in facts.items() if each.get("queries")}


def _asked_first(spec: PipelineSpec) -> str:
    names = [each.name for each in spec.computations if each.slices is not None]
    return next(iter(names or [each.name for each in spec.computations]), "")
