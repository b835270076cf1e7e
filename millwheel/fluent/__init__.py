"""Pipelines in Python: calls that build the same documents as YAML. docs/python-api.md shows how."""

from millwheel.fluent import agg
from millwheel.fluent.ends import (
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSource,
    InjectionSource,
    OtherSink,
    OtherSource,
    StdoutSink,
    param,
    secret,
)
from millwheel.fluent.pipeline import Pipeline
from millwheel.fluent.streams import KeyedStream, Stream
from millwheel.fluent.windowed import WindowedStream

__all__ = [
    "FileSink",
    "FileSource",
    "GeneratorSource",
    "HttpSource",
    "InjectionSource",
    "KeyedStream",
    "OtherSink",
    "OtherSource",
    "Pipeline",
    "StdoutSink",
    "Stream",
    "WindowedStream",
    "agg",
    "param",
    "secret",
]
