"""Contract tests for sinks and sources, also those of third parties: derive a test class, and
pytest runs the checks.

    class TestMySink(ExternalSinkContract):
        def world(self) -> SinkWorld: ...

docs/connectors.md shows complete examples.
"""

from __future__ import annotations

from millwheel.tools.testing.contracts.external import ExternalSinkContract
from millwheel.tools.testing.contracts.outside import Killed, Outside, WatchedClient
from millwheel.tools.testing.contracts.sinks import SinkContract
from millwheel.tools.testing.contracts.sources import SourceContract
from millwheel.tools.testing.contracts.worlds import RefusedValue, ShardLife, SinkWorld

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
