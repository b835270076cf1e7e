"""The server of a worker for queries by the Redis protocol, and how it follows the run."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping

from millwheel.adapters.grpc.certificates import keep_renewed
from millwheel.adapters.grpc.security import Security, check_listen, is_loopback
from millwheel.connect.own_functions import language_of_queries
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.commands import QueryService
from millwheel.engine.queries.link import secured_links
from millwheel.engine.queries.model import AskedQueries
from millwheel.engine.queries.named_queries import ChangesRead, NamedFollower
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.server import QueryServer
from millwheel.engine.workers.host.health import HealthMeasures


class Queried:
    """The server of queries of one worker."""

    def __init__(
        self,
        listen: str,
        me: str,
        spec: PipelineSpec,
        security: Security | None,
        changes: ChangesRead,
    ) -> None:
        check_listen(listen, security)
        self._listen = listen
        self._catalog = Catalog.of(spec, language_of_queries(spec))
        self._named = NamedFollower(self._catalog.named, changes)
        self._cluster = ClusterMap(me, _asked_first(spec))
        self._security = security

    def begin(
        self,
        post: Callable[[AskedQueries], None],
        check: Callable[[], None],
        clock: Callable[[], int],
        health: HealthMeasures,
    ) -> str:
        """Start serving, and return the address. Raises SetupError when it cannot be bound."""
        admits = None if self._security is None else self._admits
        service = QueryService(
            self._catalog, self._cluster, clock, admits, health.errors, health.now
        )
        server = QueryServer(
            self._listen, service, post, check, self._tls(), secured_links(self._security)
        )
        self._listen = server.address
        self._named.begin()
        server.start()
        return server.address

    def _admits(self, credential: bytes) -> bool:
        return self._security is None or self._security.admits(credential, self._listen)

    def _tls(self) -> ssl.SSLContext | None:
        if (
            self._security is None
            or self._security.tls is None
            or is_loopback(self._listen.rpartition(":")[0])
        ):
            return None
        from millwheel.adapters.grpc.certificates import server_context

        context = server_context(self._security.tls)
        keep_renewed(context, self._security.tls)
        return context

    def changed(self) -> None:
        """Read the named queries again, which may have changed (any thread)."""
        self._named.changed()

    def table(self, table: RangeTable) -> None:
        """Follow a new range table."""
        self._cluster.follow(table)

    def workers(self, members: Mapping[str, bytes]) -> None:
        """Follow the workers that came and went."""
        facts = {name: json.loads(data) for name, data in members.items()}
        self._cluster.addresses = {
            name: each["queries"] for name, each in facts.items() if each.get("queries")
        }


def _asked_first(spec: PipelineSpec) -> str:
    names = [each.name for each in spec.computations if isinstance(each.work, SlicesSpec)]
    return next(iter(names or [each.name for each in spec.computations]), "")
