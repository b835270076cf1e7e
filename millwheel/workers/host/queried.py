"""Where a worker answers queries by the Redis protocol, and how that server follows the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from millwheel.adapters.grpc.security import Security, check_listen, is_loopback
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.queries.asked import AskedQueries
from millwheel.queries.cluster import ClusterMap
from millwheel.queries.commands import QueryService
from millwheel.queries.following import ChangesRead, NamedFollower
from millwheel.queries.names import Catalog
from millwheel.queries.peers.link import Links
from millwheel.queries.server import QueryServer
from millwheel.workers.host.health import HealthMeasures


class Queried:
    """The server of queries of one worker."""

    def __init__(
        self, listen: str, me: str, spec: PipelineSpec, security: Security | None, changes: ChangesRead
    ) -> None:
        check_listen(listen, security)
        self._listen = listen
        self._catalog = Catalog.of(spec)
        self._named = NamedFollower(self._catalog.named, changes)
        self._cluster = ClusterMap(me, _asked_first(spec))
        self._security = None if is_loopback(listen.rpartition(":")[0]) else security

    def begin(
        self,
        post: Callable[[AskedQueries], None],
        check: Callable[[], None],
        clock: Callable[[], int],
        health: HealthMeasures,
    ) -> str:
        """Start serving, and return the address. Raises SetupError when it cannot be bound."""
        token, tls, links = "", None, Links()
        if self._security is not None:
            from millwheel.adapters.metrics.tls import client_context, server_context

            token, tls = self._security.token, server_context(self._security)
            links = Links(token, client_context(self._security))
        service = QueryService(self._catalog, self._cluster, clock, token, health.errors, health.now)
        server = QueryServer(self._listen, service, post, check, tls, links)
        self._named.begin()
        server.start()
        return server.address

    def changed(self) -> None:
        """Named queries may have changed (any thread)."""
        self._named.changed()

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
