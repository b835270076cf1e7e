"""Sources, which read records from files, generators and other systems. ``base`` is the contract,
the built-in kinds are rows of ``connect/built_in.py``.

A third party's kind is an entry point of the group ``millwheel.sources``, called as
``factory(options, folder)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.adapters.secret_values import revealed
from millwheel.connect.built_in import SOURCES
from millwheel.connect.plug_ins import made_by, names_in
from millwheel.connect.sources.adapter import as_source
from millwheel.connect.sources.base import Source
from millwheel.core.pipeline.spec import SourceSpec

_GROUP = "millwheel.sources"


def known_sources() -> list[str]:
    """The names that may stand below ``source:``, sorted."""
    return sorted({*SOURCES, *names_in(_GROUP)})


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
        return as_source(made_by(_GROUP, "source", spec.kind, known_sources, options, folder))
    if not own.build:
        raise ValueError(
            f"the source {spec.kind!r} has no partitions to read: records are sent to the workers"
        )
    built: Source = own.built(options, folder=folder, schema=schema, fields=fields or {})
    return built
