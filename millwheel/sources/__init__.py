"""Sources, which read records from files, generators and other systems. ``base`` is the contract, the other modules are
the built-in kinds.

A third party's kind is an entry point of the group ``millwheel.sources``, called as ``factory(options, folder)``.
"""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.pipeline.spec import SourceSpec
from millwheel.plug_ins import made_by, names_in
from millwheel.secret_values import revealed
from millwheel.sources.adapted import as_source
from millwheel.sources.base import Source

_GROUP = "millwheel.sources"
BUILT_IN = ("files", "generator", "http", "injection", "kafka", "postgres")


def known_sources() -> list[str]:
    """The names that may stand below ``source:``, sorted."""
    return sorted({*BUILT_IN, *names_in(_GROUP)})


def build_source(
    spec: SourceSpec, folder: str, schema: type | None = None, fields: Mapping[str, str] | None = None
) -> Source:
    """The source that a spec describes. Relative paths are relative to ``folder``.

    Values are decoded into ``schema`` if one is given, else they are dicts. ``fields`` maps names to "int", "float",
    "str" or "bool": a record in which one of them has another type is rejected. Raises ValueError for invalid options,
    SetupError for a secret without a value on this machine.
    """
    options = revealed(spec.options)
    if spec.kind == "files":
        from millwheel.sources.files.source import build_files

        return build_files(options, folder, schema, fields or {})
    if spec.kind == "generator":
        from millwheel.sources.generator import build_generator

        return build_generator(options, folder, schema)
    if spec.kind == "kafka":
        from millwheel.connectors.kafka.source import build_kafka_source

        return build_kafka_source(options, schema, fields, folder)
    if spec.kind == "postgres":
        from millwheel.connectors.postgres.source import build_postgres_source

        return build_postgres_source(options, schema, fields)
    if spec.kind == "injection":
        raise ValueError("the source 'injection' has no partitions to read: records are sent to the workers")
    return as_source(made_by(_GROUP, "source", spec.kind, known_sources, options, folder))
