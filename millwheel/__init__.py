"""Millisecond, exactly-once, per-key stream processing in plain Python, on Spark.

What a pipeline's own code imports is here; everything else is the system's.
"""

from __future__ import annotations

from millwheel.api import Computation, Context, ListState, MapState, ValueState
from millwheel.core.records import Domain, Record, Timer

__all__ = ["Computation", "Context", "Domain", "ListState", "MapState", "Record", "Timer", "ValueState"]
