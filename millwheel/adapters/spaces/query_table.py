"""The table of named queries that were set while a pipeline runs: ``queries/00000001.json`` and so
on in the root."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from millwheel.adapters.spaces.files import explaining
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow

_END = ".json"
_KEPT = 3
"""Older tables that stay: a reader that has just listed them still finds one."""


class QueryTable:
    """For any thread. Raises UnavailableError or SetupError when the root does not do what it is
    asked, CorruptionError for damage."""

    def __init__(self, space: ObjectSpace) -> None:
        self._space = space
        self._folder = f"{space.root}/queries"

    def read(self, latest: QueryChanges | None = None) -> QueryChanges:
        """The newest table; ``latest`` itself if it is that."""
        with explaining(f"read the named queries in {self._folder}"):
            number = max(self._numbers(), default=0)
            if latest is not None and latest.number >= number:
                return latest
            return (
                QueryChanges.decode(self._space.get(self._key(number)))
                if number
                else QueryChanges()
            )

    def change(self, rows: Sequence[QueryRow]) -> QueryChanges:
        """Set the rows, whoever else does so meanwhile; the table that has them."""
        while True:
            changes = self.read().changed(rows, uuid4().hex)
            with explaining(f"write the named queries in {self._folder}"):
                self._space.prepare(self._folder)
                if self._space.create(self._key(changes.number), changes.encode()):
                    numbers = self._numbers()
                    # So far behind the newest, the number was free because its table is deleted:
                    # nobody reads ours.
                    if max(numbers) > changes.number + _KEPT:
                        continue
                    for number in numbers:
                        if number < changes.number - _KEPT:
                            self._space.delete(self._key(number))
                    return changes

    def _numbers(self) -> list[int]:
        names = self._space.names(self._folder)
        return [
            int(stem)
            for name in names
            if name.endswith(_END) and (stem := name.removesuffix(_END)).isdecimal()
        ]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:08d}{_END}"
