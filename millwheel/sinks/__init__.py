"""Sinks: where results go. ``base`` is the contract, the other modules are the built-in kinds.

A third party's kind is an entry point of the group ``millwheel.sinks``, called as ``factory(options, folder)``.
"""

from __future__ import annotations

from typing import Any

from millwheel.core.pipeline.spec import SinkSpec
from millwheel.plug_ins import made_by, names_in
from millwheel.secret_values import revealed
from millwheel.sinks.adapted import as_sink
from millwheel.sinks.base import Sink

_GROUP = "millwheel.sinks"
BUILT_IN = ("delta", "files", "iceberg", "kafka", "postgres", "redis", "stdout")


def known_sinks() -> list[str]:
    """The names that may stand below a stream in ``sinks:``, sorted."""
    return sorted({*BUILT_IN, *names_in(_GROUP)})


def build_sink(spec: SinkSpec, folder: str, identity: str = "") -> Sink:
    """The sink that a spec describes. Relative paths are relative to ``folder``; ``identity`` names the run's root.

    Raises ValueError, with a sentence, for options that cannot work, SetupError for a secret that has no value here.
    """
    made = _made(spec, revealed(spec.options), folder, identity)
    made.identity = identity
    return made


def _made(spec: SinkSpec, options: dict[str, Any], folder: str, identity: str) -> Sink:
    if spec.kind == "files":
        from millwheel.sinks.files.sink import build_files

        return build_files(options, folder)
    if spec.kind == "delta":
        from millwheel.connectors.tables.sink import build_delta_sink

        return build_delta_sink(options, folder)
    if spec.kind == "iceberg":
        from millwheel.connectors.tables.sink import build_iceberg_sink

        return build_iceberg_sink(options)
    if spec.kind == "kafka":
        from millwheel.connectors.kafka.sink import build_kafka_sink

        return build_kafka_sink(options, identity, folder)
    if spec.kind == "postgres":
        from millwheel.connectors.postgres.sink import build_postgres_sink

        return build_postgres_sink(options)
    if spec.kind == "redis":
        from millwheel.connectors.redis.sink import build_redis_sink

        return build_redis_sink(options)
    if spec.kind == "stdout":
        from millwheel.sinks.stdout import build_stdout

        return build_stdout(options)
    return as_sink(made_by(_GROUP, "sink", spec.kind, known_sinks, options, folder))
