"""Lookups: the values that other systems hold for a key. docs/lookups.md shows how to use them.

The built-in kinds are rows of ``connect/built_in.py``. A third party's kind is an entry point of
the group ``millwheel.lookups``."""

from __future__ import annotations

from millwheel.adapters.secret_values import revealed
from millwheel.connect.built_in import LOOKUPS
from millwheel.connect.lookups.base import Lookup
from millwheel.connect.plug_ins import made_by, names_in, require
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import LookupSpec

_GROUP = "millwheel.lookups"


def known_lookups() -> list[str]:
    """The names that may stand below ``lookup:``, sorted."""
    return sorted({*LOOKUPS, *names_in(_GROUP)})


def lookup_of(spec: ComputationSpec, folder: str) -> Lookup:
    """The lookup of a computation that has one."""
    return build_lookup(spec.work_as(LookupSpec), folder)


def build_lookup(spec: LookupSpec, folder: str) -> Lookup:
    """The lookup that a spec describes. Raises ValueError for invalid options, SetupError for a
    secret without a value on this machine."""
    options = revealed(spec.options)
    lookup: Lookup
    if (own := LOOKUPS.get(spec.kind)) is not None:
        lookup = own.built(options, folder=folder)
        return lookup
    lookup = made_by(_GROUP, "lookup", spec.kind, known_lookups, options, folder)
    require(lookup, Lookup, "by", "where", "check", "close")
    return lookup
