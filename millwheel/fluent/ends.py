"""The sources of ``read`` and the sinks of ``write``.

Paths are as in YAML: relative to the file of the pipeline, and ``"${name}"`` or :func:`param` is replaced by the value
of ``--set name=value``. A setting that is None has its default; see docs/pipeline.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

Duration = str | timedelta
"""A number and a unit, such as ``"500ms"``, ``"10s"``, ``"2m"`` or ``"1h30m"``; or a timedelta."""
PathText = str | os.PathLike[str]


def param(name: str, default: object = None) -> Any:
    """A parameter of the pipeline: the value of ``--set name=…``, else of the environment variable, else ``default``.

    The value is inserted when the pipeline is loaded, not when this is called. Use a parameter wherever a text, a
    number or a duration is expected: ``read("hits", FileSource(param("input"), "jsonl"), …)``.
    """
    return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"


def secret(name: str) -> str:
    """A secret of the pipeline, for options of sources, sinks and callbacks. Each worker that uses it looks it up, and
    it is never written. It may be part of a longer text: ``f"postgres://me:{secret('PG')}@db"``."""
    return f"${{secret:{name}}}"


@dataclass(frozen=True)
class DeclaredSource:
    """Base of the sources. ``kind`` is the name under which the source is registered."""

    kind: ClassVar[str] = ""

    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return _given(self)


@dataclass(frozen=True)
class FileSource(DeclaredSource):
    """Files, each read in order by one worker.

    ``path`` is a file, a glob, a folder, or a list of them. With ``follow`` reading continues as the files grow.
    ``delimiter`` and ``columns`` are for CSV. Lines longer than ``max_line_bytes`` go to the dead letters.
    """

    kind: ClassVar[str] = "files"
    path: PathText | Sequence[PathText]
    format: Literal["jsonl", "csv", "parquet", "apache_combined"]
    follow: bool | None = None
    delimiter: str | None = None
    columns: Sequence[str] | None = None
    max_line_bytes: int | None = None


@dataclass(frozen=True)
class GeneratorSource(DeclaredSource):
    """Synthetic records, ``rate`` per second (0: as fast as possible), ``count`` of them (None: unbounded).

    ``factory(index, partition number)`` makes a value; by default ``{"id", "key", "value", "ts"}``.
    """

    kind: ClassVar[str] = "generator"
    rate: float | None = None
    count: int | None = None
    keys: int | None = None
    partitions: int | None = None
    factory: Callable[[int, int], Any] | str | None = None
    seed: int | None = None
    start: str | datetime | None = None


@dataclass(frozen=True)
class InjectionSource(DeclaredSource):
    """Records that are sent in from outside, by ``millwheel inject`` or over gRPC. Give the stream an ``id``."""

    kind: ClassVar[str] = "injection"


@dataclass(frozen=True)
class HttpSource(DeclaredSource):
    """Records that are sent in by POST to ``http://host:port/``, as JSON lines or CloudEvents; extra ``http``. Give the
    stream an ``id``. A request has at most ``max_bytes``; more than ``max_requests`` at once are sent away with 429.
    A body must be there within ``body_timeout``, ``"30s"``."""

    kind: ClassVar[str] = "http"
    port: int | str
    host: str | None = None
    max_bytes: int | None = None
    max_requests: int | None = None
    body_timeout: str | None = None
    client_certificates: bool | None = None


@dataclass(frozen=True)
class OtherSource(DeclaredSource):
    """A source that an installed package registered under ``name``, with its options."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        return dict(self.settings)


@dataclass(frozen=True)
class DeclaredSink:
    """Base of the sinks. ``kind`` is the name under which the sink is registered."""

    kind: ClassVar[str] = ""

    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return _given(self)


@dataclass(frozen=True)
class FileSink(DeclaredSink):
    """Part files in the folder ``path``: whole, committed and final. They contain each record exactly once.

    A file is written once its first record has waited for ``flush``, or once there are ``cut_records``.
    ``with_key`` and ``with_timestamp`` add those as fields. ``fields`` are names and types of Parquet and CSV columns.
    ``mode``: ``append``; ``changelog``, with a field ``mark`` that is ``+`` or ``-``; ``upsert``, the current rows,
    identified by the fields ``by``.
    """

    kind: ClassVar[str] = "files"
    path: PathText
    format: Literal["jsonl", "csv", "parquet"] | None = None
    flush: Duration | None = None
    cut_records: int | None = None
    with_key: bool | None = None
    with_timestamp: bool | None = None
    fields: Mapping[str, str] | None = None
    mode: Literal["append", "changelog", "upsert"] | None = None
    by: str | list[str] | None = None
    mark: str | None = None


@dataclass(frozen=True)
class StdoutSink(DeclaredSink):
    """JSON lines on standard output. They cannot be taken back: after a crash the last ones may be printed again.
    With ``at_once`` they are printed before their commit: sooner, but a crash repeats more of them."""

    kind: ClassVar[str] = "stdout"
    with_key: bool | None = None
    with_timestamp: bool | None = None
    flush: Duration | None = None
    at_once: bool | None = None
    mode: Literal["append", "changelog"] | None = None
    mark: str | None = None


@dataclass(frozen=True)
class OtherSink(DeclaredSink):
    """A sink that an installed package registered under ``name``, with its options."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        return dict(self.settings)


def kind_of(end: DeclaredSource | DeclaredSink) -> str:
    """The name of the kind in YAML."""
    return end.name if isinstance(end, (OtherSource, OtherSink)) else end.kind


def _given(end: DeclaredSource | DeclaredSink) -> dict[str, Any]:
    values = {each.name: getattr(end, each.name) for each in fields(end)}
    return {name: value for name, value in values.items() if value is not None}
