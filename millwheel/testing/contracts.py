"""Contract tests of sinks and sources: docs/connectors.md. The code is in
``tools/testing/contracts``."""

from millwheel.tools.testing.contracts import (
    ExternalSinkContract,
    Killed,
    Outside,
    RefusedValue,
    ShardLife,
    SinkContract,
    SinkWorld,
    SourceContract,
    WatchedClient,
)
from millwheel.tools.testing.contracts.worlds import IDENTITY

__all__ = [
    "IDENTITY",
    "ExternalSinkContract",
    "Killed",
    "Outside",
    "RefusedValue",
    "ShardLife",
    "SinkContract",
    "SinkWorld",
    "SourceContract",
    "WatchedClient",
]
