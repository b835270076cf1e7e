"""Contract tests for sinks and sources, also those of third parties: derive a test class, and pytest runs the checks.

    class TestMySink(ExternalSinkContract):
        def world(self) -> SinkWorld: ...

docs/connectors.md shows complete examples.
"""

from __future__ import annotations

from millwheel.testing.contracts.external import ExternalSinkContract
from millwheel.testing.contracts.outside import Killed, Outside, WatchedClient
from millwheel.testing.contracts.sinks import SinkContract
from millwheel.testing.contracts.sources import SourceContract
from millwheel.testing.contracts.worlds import RefusedValue, ShardLife, SinkWorld

__all__ = [
    "ExternalSinkContract",
    "Killed",
    "RefusedValue",
    "ShardLife",
    "Outside",
    "SinkContract",
    "SinkWorld",
    "SourceContract",
    "WatchedClient",
]
