"""The contract of a table for its committer: a read of the newest version, and a commit that
succeeds only if no other commit came between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millwheel.connect.connectors.external.target import NOTHING_YET
from millwheel.errors import MillwheelError


@dataclass(frozen=True, slots=True)
class TableMark:
    """A shard's note in the table: the number of its last batch, and the lease token of its
    owner."""

    number: int = NOTHING_YET
    token: int = 0


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one commit. ``add`` are rows. ``remove`` has the identities of rows that are
    removed first."""

    marks: Mapping[str, TableMark]
    add: pa.Table
    remove: pa.Table | None = None


class TableConflictError(MillwheelError):
    """Another writer has committed since this version was read. Nothing was written."""


class TableVersion(ABC):
    """The table as it was at one moment."""

    schema: pa.Schema

    @abstractmethod
    def mark(self, name: str) -> TableMark:
        """The note of a shard."""

    @abstractmethod
    def commit(self, change: TableChange) -> None:
        """Make the change in one commit of the table, if this is still its newest version. Raises
        TableConflictError if it is not, UnavailableError if the outcome is unknown."""

    @abstractmethod
    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        """The rows of these identities."""


class LakeTable(ABC):
    """A table by its address. ``where`` names it for people; ``identity`` holds everything that
    makes it another table: its name, catalog, store and credentials."""

    where: str
    identity: tuple[Hashable, ...]

    @abstractmethod
    def look(self) -> TableVersion:
        """The newest version. Raises SetupError when the table does not exist, UnavailableError
        when the store does not answer."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Make the table; it may be there by now."""
