"""The kinds of lookups, by their names. A third party's kind is an entry point of the group ``millwheel.lookups``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from millwheel.core.pipeline.spec import ComputationSpec, LookupSpec
from millwheel.errors import SetupError
from millwheel.lookups.base import Lookup
from millwheel.options import did_you_mean
from millwheel.plug_ins import require
from millwheel.secret_values import revealed

_GROUP = "millwheel.lookups"
_BUILT_IN = ("postgres", "redis")


def known_lookups() -> list[str]:
    """The names that may stand below ``lookup:``, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=_GROUP))})


def lookup_of(spec: ComputationSpec, folder: str) -> Lookup:
    """The lookup of a computation that has one."""
    assert spec.lookup is not None
    return build_lookup(spec.lookup, folder)


def build_lookup(spec: LookupSpec, folder: str) -> Lookup:
    """The lookup that a spec describes. Raises ValueError, with a sentence, for options that cannot work, SetupError
    for a secret that has no value here."""
    options = revealed(spec.options)
    if spec.kind == "postgres":
        from millwheel.connectors.postgres.lookup import build_postgres_lookup

        return build_postgres_lookup(options)
    if spec.kind == "redis":
        from millwheel.connectors.redis.lookup import build_redis_lookup

        return build_redis_lookup(options)
    return _third_party(spec.kind, options, folder)


def _third_party(kind: str, options: dict[str, Any], folder: str) -> Lookup:
    for point in entry_points(group=_GROUP, name=kind):
        try:
            factory = point.load()
        except Exception as ex:  # a broken package may raise anything when it is imported
            reason = f"{type(ex).__name__}: {ex}"
            raise SetupError(f"the lookup {kind!r} ({point.value}) cannot be loaded: {reason}") from ex
        made: Lookup = factory(options, folder)
        require(made, Lookup, "by", "where", "check", "close")
        return made
    raise ValueError(f"there is no lookup {kind!r}{did_you_mean(kind, known_lookups())}")
