"""The ``streams:`` and ``sinks:`` parts of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millwheel.core.spec import SinkSpec, SourceSpec, StreamSpec
from millwheel.errors import MillwheelError
from millwheel.spec.document import Section, hint

_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000}
_TYPES = ("int", "float", "str", "bool")


def read_stream(name: str, section: Section, folder: str) -> StreamSpec:
    """One stream. ``folder`` is what literal relative paths are relative to."""
    section.allow("source", "timestamp", "id", "schema", "fields", "watermark")
    source = _source(section, folder)
    timestamp, unit = _timestamp(section, source)
    watermark = section.section("watermark")
    watermark.allow("max_delay", "idle_after", "max_future")
    ids = section.section("id") if isinstance(section.get("id"), Mapping) else None
    if ids is not None:
        ids.allow("field", "horizon")
    return StreamSpec(
        name=name,
        source=source,
        timestamp=timestamp,
        timestamp_unit_us=unit,
        id=ids.text("field") if ids is not None else section.text("id"),
        id_horizon_us=(ids.duration("horizon", 3_600_000_000) if ids is not None else None) or 3_600_000_000,
        schema=section.text("schema"),
        fields=_fields(section),
        max_delay_us=watermark.duration("max_delay", 0) or 0,
        idle_after_us=watermark.duration("idle_after", 5_000_000, never=True),
        max_future_us=watermark.duration("max_future", 86_400_000_000, never=True),
        where=f"{section.problems.file}:{section.line}",
    )


def _source(section: Section, folder: str) -> SourceSpec | None:
    from millwheel.sources import build_source, known_sources

    if "source" not in section:
        return None
    kind, options = _one_kind(section, "source", known_sources(), folder)
    if not kind:
        return None
    spec = SourceSpec(kind, options)
    if kind != "injection":
        try:
            build_source(spec, folder)
        except (ValueError, MillwheelError) as ex:
            _blame(section.section("source").section(kind), section, "source", ex)
    return spec


def _one_kind(section: Section, name: str, known: list[str], folder: str) -> tuple[str, dict[str, Any]]:
    """``{kind: {options}}``, with paths made absolute."""
    outer = section.section(name)
    if len(outer.data) != 1:
        section.bad(name, f"name exactly one kind, for example {name}: {{files: {{path: …}}}}. Known: {', '.join(sorted(known))}")
        return "", {}
    kind = str(next(iter(outer.data)))
    if kind not in known:
        outer.bad(kind, f"unknown kind {kind!r}{hint(kind, known)}")
        return "", {}
    options = dict(outer.section(kind).data)
    if kind == "files" and "path" in options:
        options["path"] = absolute(options["path"], folder)
    return kind, options


def absolute(path: Any, folder: str) -> Any:
    """A path, or a list of them, relative to ``folder``."""
    if isinstance(path, list):
        return [absolute(one, folder) for one in path]
    return str(Path(folder, str(path))) if "://" not in str(path) else str(path)


def _blame(options: Section, section: Section, name: str, error: Exception) -> None:
    """Put a factory's complaint at the option it names, if it names one."""
    text = str(error)
    named = next((option for option in options.data if repr(option) in text or f"{option}:" in text), None)
    if named is not None:
        options.bad(named, text)
    else:
        section.bad(name, text)


def _timestamp(section: Section, source: SourceSpec | None) -> tuple[str, int]:
    value = section.get("timestamp")
    if isinstance(value, Mapping):
        inner = section.section("timestamp")
        inner.allow("field", "unit")
        unit = inner.choice("unit", _UNITS, "us")
        if not inner.text("field"):
            inner.bad("field", "name the field that holds the timestamp")
        return inner.text("field"), _UNITS[unit]
    if value is None and source is not None and source.kind == "generator":
        return "ts", 1
    if value is None and source is not None:
        section.bad("timestamp", "a stream with a source needs to know where its timestamps are; write timestamp: FIELD")
    return section.text("timestamp"), 1


def _fields(section: Section) -> dict[str, str]:
    inner = section.section("fields")
    return {name: inner.choice(name, _TYPES, "str") for name in inner.data}


def read_sink(stream: str, section: Section, parent: Section, folder: str) -> SinkSpec | None:
    """One sink: ``stream: {kind: {options}}``."""
    from millwheel.sinks import build_sink, known_sinks

    kind, options = _one_kind(parent, stream, known_sinks(), folder)
    if not kind:
        return None
    spec = SinkSpec(stream, kind, options, f"{section.problems.file}:{section.line}")
    try:
        build_sink(spec, folder)
    except (ValueError, MillwheelError) as ex:
        _blame(section.section(kind), parent, stream, ex)
    return spec
