"""For other programs: sends records to a running pipeline, each counted once (docs/injection.md),
and queries it (docs/queries.md)."""

from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.engine.queries.model import QueryAnswer, QueryError
from millwheel.tools.client.injector import AsyncInjector, Injector
from millwheel.tools.client.queries import AsyncQueries, Queries
from millwheel.tools.client.query_requests import Ask

__all__ = [
    "Ask",
    "AsyncInjector",
    "AsyncQueries",
    "InjectionResult",
    "Injector",
    "Queries",
    "QueryAnswer",
    "QueryError",
]
