"""Named queries that were set or removed while a pipeline runs. Pure.

The root holds a numbered series of objects, each with all changes so far: the one with the highest
number counts. A writer creates the next number, which succeeds for one of several, so no change is
lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.errors import CorruptionError

QUERIES_ROLE = "queries"
"""A command that changes named queries joins this role for a moment, so that workers read the
changes at once."""


class QueryRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named query, in its stored form. ``formula`` "": the query is removed, even if the
    pipeline's file has it."""

    name: str
    formula: str = ""
    window_us: int | None = None
    key: list[str] = []
    keys: dict[str, list[str]] = {}

    @staticmethod
    def of(spec: QuerySpec) -> QueryRow:
        """The row that sets a query."""
        keys = {name: list(parts) for name, parts in spec.keys.items()}
        return QueryRow(spec.name, spec.formula, spec.window_us, list(spec.key), keys)

    @property
    def spec(self) -> QuerySpec:
        """The query."""
        keys = {name: tuple(parts) for name, parts in self.keys.items()}
        return QuerySpec(self.name, self.formula, self.window_us, tuple(self.key), keys)


class QueryChanges(msgspec.Struct, frozen=True):
    """All changes up to ``number``, the last one of each name. ``put_id`` is unique to each attempt
    to create the object."""

    number: int = 0
    rows: list[QueryRow] = []
    put_id: str = ""

    def changed(self, rows: Sequence[QueryRow], put_id: str) -> QueryChanges:
        """The next changes, with these rows."""
        by_name = {row.name: row for row in (*self.rows, *rows)}
        return QueryChanges(self.number + 1, list(by_name.values()), put_id)

    def encode(self) -> bytes:
        """As JSON, which people can read."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> QueryChanges:
        """The inverse. Raises CorruptionError for anything else."""
        try:
            return _decode(data)
        except DAMAGE as ex:
            raise CorruptionError(
                f"{len(data)} bytes are not a table of named queries: {ex}"
            ) from ex


_decode = msgspec.json.Decoder(QueryChanges).decode
