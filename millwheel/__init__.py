"""Millisecond, exactly-once, per-key stream processing in plain Python, on Spark.

What a pipeline's own code imports is here; everything else is the system's.
"""

from __future__ import annotations

from millwheel.api import Computation, Context, ListState, MapState, ValueState
from millwheel.core.aggregates import Aggregator
from millwheel.core.panes import Pane, Retraction, Timing
from millwheel.core.records import Domain, Record, Timer
from millwheel.core.trigger_combinations import AfterAll, AfterAny, AfterEach, Once, OrFinally, Repeat
from millwheel.core.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)
from millwheel.core.windows import Count, Cumulative, Custom, Global, Sessions, Sliding, Tumbling, Window

__all__ = [
    "AfterAll",
    "AfterAny",
    "AfterBytes",
    "AfterCount",
    "AfterEach",
    "AfterPercentileWatermark",
    "AfterProcessingTime",
    "AfterWatermark",
    "Aggregator",
    "Computation",
    "Context",
    "Count",
    "Cumulative",
    "Custom",
    "Default",
    "Domain",
    "Global",
    "ListState",
    "MapState",
    "Never",
    "Once",
    "OrFinally",
    "Pane",
    "Record",
    "Repeat",
    "Retraction",
    "Sessions",
    "Sliding",
    "Timer",
    "Timing",
    "Trigger",
    "Tumbling",
    "ValueState",
    "Window",
]
