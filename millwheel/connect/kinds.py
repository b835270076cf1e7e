"""Builds the source, sink or lookup of a spec, of a built-in kind or of one that an installed
package adds.

The built-in kinds are rows of ``built_in.py``. A third party's kind is an entry point of the group
``millwheel.sources``, ``millwheel.sinks`` or ``millwheel.lookups``, called as
``factory(options, folder)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.adapters.secret_values import revealed
from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.connect.lookups.base import Lookup
from millwheel.connect.plug_ins import as_sink, as_source, made_by, names_in, require
from millwheel.connect.sinks.base import Sink
from millwheel.connect.sources.base import Source
from millwheel.core.pipeline.spec import ComputationSpec, SinkSpec, SourceSpec
from millwheel.core.pipeline.work import LookupSpec

_SOURCES, _SINKS, _LOOKUPS = "millwheel.sources", "millwheel.sinks", "millwheel.lookups"


def known_sources() -> list[str]:
    """The names that may stand below ``source:``, sorted."""
    return sorted({*SOURCES, *names_in(_SOURCES)})


def build_source(
    spec: SourceSpec,
    folder: str,
    schema: type | None = None,
    fields: Mapping[str, str] | None = None,
) -> Source:
    """The source that a spec describes. Relative paths are relative to ``folder``.

    Values are decoded into ``schema`` if one is given, else they are dicts. ``fields`` maps names
    to "int", "float", "str" or "bool": a record in which one of them has another type is rejected.
    Raises ValueError for invalid options, SetupError for a secret without a value on this machine.
    """
    options = revealed(spec.options)
    own = SOURCES.get(spec.kind)
    if own is None:
        return as_source(made_by(_SOURCES, "source", spec.kind, known_sources, options, folder))
    if not own.build:
        raise ValueError(
            f"the source {spec.kind!r} has no partitions to read: records are sent to the workers"
        )
    built: Source = own.built(options, folder=folder, schema=schema, fields=fields or {})
    return built


def known_sinks() -> list[str]:
    """The names that may stand below a stream in ``sinks:``, sorted."""
    return sorted({*SINKS, *names_in(_SINKS)})


def build_sink(spec: SinkSpec, folder: str, identity: str = "") -> Sink:
    """The sink that a spec describes. Relative paths are relative to ``folder``; ``identity`` names
    the run's root.

    Raises ValueError, with a sentence, for options that cannot work, SetupError for a secret that
    has no value here.
    """
    options = revealed(spec.options)
    own = SINKS.get(spec.kind)
    sink: Sink = (
        as_sink(made_by(_SINKS, "sink", spec.kind, known_sinks, options, folder))
        if own is None
        else own.built(options, folder=folder)
    )
    sink.identity = identity
    return sink


def known_lookups() -> list[str]:
    """The names that may stand below ``lookup:``, sorted."""
    return sorted({*LOOKUPS, *names_in(_LOOKUPS)})


def lookup_of(spec: ComputationSpec, folder: str) -> Lookup:
    """The lookup of a computation, which has one."""
    return build_lookup(spec.work_as(LookupSpec), folder)


def build_lookup(spec: LookupSpec, folder: str) -> Lookup:
    """The lookup that a spec describes. Raises ValueError for invalid options, SetupError for a
    secret without a value on this machine."""
    options = revealed(spec.options)
    lookup: Lookup
    if (own := LOOKUPS.get(spec.kind)) is not None:
        lookup = own.built(options, folder=folder)
        return lookup
    lookup = made_by(_LOOKUPS, "lookup", spec.kind, known_lookups, options, folder)
    require(lookup, Lookup, "by", "where", "check", "close")
    return lookup
