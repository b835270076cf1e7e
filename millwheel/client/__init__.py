"""For other programs: sends records to a running pipeline, each counted once (docs/injection.md), and queries it
(docs/queries.md)."""

from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.client.asked import Ask
from millwheel.client.injector import AsyncInjector, Injector
from millwheel.client.queries import AsyncQueries, Queries
from millwheel.queries.model import QueryAnswer, QueryError

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
