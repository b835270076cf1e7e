"""Pipelines in Python: calls that build the same documents as YAML. docs/python-api.md shows
how."""

from millwheel.python.fluent import agg
from millwheel.python.fluent.ends import OtherLookup, OtherSink, OtherSource, param, secret
from millwheel.python.fluent.kinds import (
    DeltaSink,
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSource,
    IcebergSink,
    InjectionSource,
    KafkaSink,
    KafkaSource,
    PostgresLookup,
    PostgresSink,
    PostgresSource,
    RedisLookup,
    RedisSink,
    StdoutSink,
)
from millwheel.python.fluent.option_values import (
    AvroFormat,
    CsvFormat,
    DebeziumFormat,
    FileRoll,
    ProtobufFormat,
    RawFormat,
    SchemaRegistry,
    TextFormat,
)
from millwheel.python.fluent.pipeline import Pipeline
from millwheel.python.fluent.streams import KeyedStream, Stream
from millwheel.python.fluent.windowed_streams import WindowedStream

__all__ = [
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
]
