"""For other programs: sends records to a running pipeline, and queries it. The code is in
``tools/client``."""

from millwheel.tools.client import (
    Ask,
    AsyncInjector,
    AsyncQueries,
    InjectionResult,
    Injector,
    Queries,
    QueryAnswer,
    QueryError,
)

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
