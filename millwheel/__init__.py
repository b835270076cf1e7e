"""Millisecond, exactly-once, per-key stream processing in plain Python, on Spark.

What a pipeline's own code imports is here; everything else is the system's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millwheel.adapters.processes.interpreter import forget_current_folder

forget_current_folder()  # before anything is imported that a file there could have the name of
# isort: split

from millwheel.api import Computation, Context, ListState, MapState, ValueState
from millwheel.core.aggregates.base import Aggregator
from millwheel.core.model.records import Domain, Record, Timer
from millwheel.core.windows.combinations import (
    AfterAll,
    AfterAny,
    AfterEach,
    Once,
    OrFinally,
    Repeat,
)
from millwheel.core.windows.panes import Pane, Retraction, Timing, as_retraction
from millwheel.core.windows.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)
from millwheel.core.windows.windows import (
    Count,
    Cumulative,
    Custom,
    Global,
    OfInput,
    Sessions,
    Sliding,
    Tumbling,
    Window,
)
from millwheel.python import earlier_paths

earlier_paths.install()

if TYPE_CHECKING:
    from millwheel.python.fluent import (
        AvroFormat,
        CsvFormat,
        DebeziumFormat,
        DeltaSink,
        FileRoll,
        FileSink,
        FileSource,
        GeneratorSource,
        HttpSource,
        IcebergSink,
        InjectionSource,
        KafkaSink,
        KafkaSource,
        KeyedStream,
        OtherLookup,
        OtherSink,
        OtherSource,
        Pipeline,
        PostgresLookup,
        PostgresSink,
        PostgresSource,
        ProtobufFormat,
        RawFormat,
        RedisLookup,
        RedisSink,
        SchemaRegistry,
        StdoutSink,
        Stream,
        TextFormat,
        WindowedStream,
        agg,
        param,
        secret,
    )

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
    "AvroFormat",
    "Computation",
    "Context",
    "Count",
    "CsvFormat",
    "Cumulative",
    "Custom",
    "DebeziumFormat",
    "Default",
    "DeltaSink",
    "Domain",
    "FileRoll",
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "Global",
    "HttpSource",
    "IcebergSink",
    "InjectionSource",
    "KafkaSink",
    "KafkaSource",
    "KeyedStream",
    "ListState",
    "MapState",
    "Never",
    "OfInput",
    "Once",
    "OrFinally",
    "OtherLookup",
    "OtherSink",
    "OtherSource",
    "Pane",
    "Pipeline",
    "PostgresLookup",
    "PostgresSink",
    "PostgresSource",
    "ProtobufFormat",
    "RawFormat",
    "Record",
    "RedisLookup",
    "RedisSink",
    "Repeat",
    "Retraction",
    "SchemaRegistry",
    "Sessions",
    "Sliding",
    "StdoutSink",
    "Stream",
    "TextFormat",
    "Timer",
    "Timing",
    "Trigger",
    "Tumbling",
    "ValueState",
    "Window",
    "WindowedStream",
    "agg",
    "as_retraction",
    "param",
    "secret",
]

_FLUENT = frozenset(
    (
        "AvroFormat",
        "CsvFormat",
        "DebeziumFormat",
        "DeltaSink",
        "FileRoll",
        "FileSink",
        "FileSource",
        "GeneratorSource",
        "HttpSource",
        "IcebergSink",
        "InjectionSource",
        "KafkaSink",
        "KafkaSource",
        "KeyedStream",
        "OtherLookup",
        "OtherSink",
        "OtherSource",
        "Pipeline",
        "PostgresLookup",
        "PostgresSink",
        "PostgresSource",
        "ProtobufFormat",
        "RawFormat",
        "RedisLookup",
        "RedisSink",
        "SchemaRegistry",
        "StdoutSink",
        "Stream",
        "TextFormat",
        "WindowedStream",
        "agg",
        "param",
        "secret",
    )
)


def __getattr__(name: str) -> Any:
    """The fluent API is imported when it is first asked for: workers of a YAML pipeline never
    are."""
    if name not in _FLUENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millwheel.python import fluent

    return getattr(fluent, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
