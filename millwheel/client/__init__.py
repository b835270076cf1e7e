"""For other programs: records into a running pipeline, each once (docs/injection.md), and questions to it
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
