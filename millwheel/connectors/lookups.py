"""The kinds of lookups, by their names. A third party's kind is an entry point of the group ``millwheel.lookups``."""

from __future__ import annotations

from millwheel.core.pipeline.spec import ComputationSpec, LookupSpec
from millwheel.lookups.base import Lookup
from millwheel.plug_ins import made_by, names_in, require
from millwheel.secret_values import revealed

_GROUP = "millwheel.lookups"
BUILT_IN = ("postgres", "redis")


def known_lookups() -> list[str]:
    """The names that may stand below ``lookup:``, sorted."""
    return sorted({*BUILT_IN, *names_in(_GROUP)})


def lookup_of(spec: ComputationSpec, folder: str) -> Lookup:
    """The lookup of a computation that has one."""
    assert spec.lookup is not None
    return build_lookup(spec.lookup, folder)


def build_lookup(spec: LookupSpec, folder: str) -> Lookup:
    """The lookup that a spec describes. Raises ValueError for invalid options, SetupError for a secret without a value
    on this machine."""
    options = revealed(spec.options)
    if spec.kind == "postgres":
        from millwheel.connectors.postgres.lookup import build_postgres_lookup

        return build_postgres_lookup(options)
    if spec.kind == "redis":
        from millwheel.connectors.redis.lookup import build_redis_lookup

        return build_redis_lookup(options)
    made: Lookup = made_by(_GROUP, "lookup", spec.kind, known_lookups, options, folder)
    require(made, Lookup, "by", "where", "check", "close")
    return made
