"""The sources, sinks and lookups of this package: one row for each. The builders, the reader of
pipeline files, the JSON Schema, the classes for Python, the reference tables of the docs and the
advice about extras follow from the rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from millwheel.adapters.spaces.object_address import PLACES, in_no_store


@dataclass(frozen=True, slots=True)
class Connector:
    """A kind. ``options`` and ``build`` are ``module:name`` below this package, imported when they
    are first needed: the struct that declares its options ("": it has none), and the builder from
    them ("": records are sent to the workers, and nothing is read).

    ``extra`` installs the ``library`` that it needs. ``schemes`` begin the addresses of its system.
    """

    options: str = ""
    build: str = ""
    extra: str = ""
    library: str = ""
    schemes: Collection[str] = ()

    def form(self) -> type[msgspec.Struct] | None:
        """The declaration of its options; None where it has none."""
        return _loaded(self.options) if self.options else None

    def built(self, options: Mapping[str, Any], **surroundings: Any) -> Any:
        """The source, sink or lookup with these options. Raises ValueError, with a sentence, for
        options that cannot work, and SetupError for a missing library."""
        return _loaded(self.build)(options, **surroundings)


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"millwheel.connect.{module}"), attribute)


_KAFKA = {"extra": "kafka", "library": "confluent_kafka"}
_POSTGRES: Any = {"extra": "postgres", "library": "psycopg", "schemes": ("postgresql",)}
_REDIS: Any = {"extra": "redis", "library": "redis", "schemes": ("rediss",)}

SOURCES: Mapping[str, Connector] = {
    "files": Connector(
        "sources.files.source:FilesSourceOptions", "sources.files.source:build_files"
    ),
    "generator": Connector(
        "sources.generator:GeneratorOptions", "sources.generator:build_generator"
    ),
    "http": Connector(
        "connectors.http.options:HttpOptions",
        extra="http",
        library="starlette",
        schemes=("https",),
    ),
    "injection": Connector(),
    "kafka": Connector(
        "connectors.kafka.source_options:KafkaSourceOptions",
        "connectors.kafka.source:build_kafka_source",
        **_KAFKA,
    ),
    "postgres": Connector(
        "connectors.postgres.pages:PostgresSourceOptions",
        "connectors.postgres.source:build_postgres_source",
        **_POSTGRES,
    ),
}
"""The kinds below ``source:``."""
SINKS: Mapping[str, Connector] = {
    "delta": Connector(
        "connectors.tables.sink:DeltaSinkOptions",
        "connectors.tables.sink:build_delta_sink",
        extra="delta",
        library="deltalake",
    ),
    "files": Connector("sinks.files.options:FilesSinkOptions", "sinks.files.sink:build_files"),
    "iceberg": Connector(
        "connectors.tables.sink:IcebergSinkOptions",
        "connectors.tables.sink:build_iceberg_sink",
        extra="iceberg",
        library="pyiceberg",
    ),
    "kafka": Connector(
        "connectors.kafka.sink_options:KafkaSinkOptions",
        "connectors.kafka.sink:build_kafka_sink",
        **_KAFKA,
    ),
    "postgres": Connector(
        "connectors.postgres.sink_options:PostgresSinkOptions",
        "connectors.postgres.sink:build_postgres_sink",
        **_POSTGRES,
    ),
    "redis": Connector(
        "connectors.redis.sink_options:RedisSinkOptions",
        "connectors.redis.sink:build_redis_sink",
        **_REDIS,
    ),
    "stdout": Connector("sinks.stdout:StdoutOptions", "sinks.stdout:build_stdout"),
}
"""The kinds below a stream in ``sinks:``."""
LOOKUPS: Mapping[str, Connector] = {
    "postgres": Connector(
        "connectors.postgres.lookup:PostgresLookupOptions",
        "connectors.postgres.lookup:build_postgres_lookup",
        **_POSTGRES,
    ),
    "redis": Connector(
        "connectors.redis.lookup:RedisLookupOptions",
        "connectors.redis.lookup:build_redis_lookup",
        **_REDIS,
    ),
}
"""The kinds below ``lookup:``."""


def connectors() -> Mapping[str, Connector]:
    """All kinds by name; for a source and a sink of one name, either: they share their extra."""
    return {**LOOKUPS, **SINKS, **SOURCES}


def extra_of(name: str) -> str:
    """The extra for a kind or for the scheme of an address; "" if there is none."""
    for kind, each in connectors().items():
        if name == kind or name in each.schemes:
            return each.extra
    return ""


def other_system(scheme: str) -> str:
    """The sentence about an address of neither files nor objects."""
    if extra := extra_of(scheme):
        return (
            f"{PLACES}; for {scheme}:// there is a connector of its own: pip install"
            f" 'millwheel-spark[{extra}]'"
        )
    return (
        f"{in_no_store(scheme)}. Other systems have connectors of their own, each with an extra:"
        f" pip install 'millwheel-spark[EXTRA]' with one of {all_extras()}"
    )


def all_extras() -> str:
    """Their names, as a sentence lists them."""
    return ", ".join(sorted({each.extra for each in connectors().values() if each.extra}))
