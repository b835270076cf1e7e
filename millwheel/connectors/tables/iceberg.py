"""Apache Iceberg tables. Number and token of a shard are properties of the table, and stand in the snapshot's summary.

A property alone would be lost or doubled in a race, because a commit of properties is checked against nothing. So each
commit of ours adds a snapshot, even if it has no rows: of two that began with the same snapshot, the second one fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millwheel.connectors.tables.table import LakeTable, TableChange, TableConflictError, TableMark, TableVersion
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_PREFIX = "millwheel.mark."
_NO_RETRIES = "commit.retry.num-retries"
_REASON_LETTERS = 300  # characters of an error of the library that are shown


def library() -> Any:
    """The ``pyiceberg.catalog`` module. Raises SetupError if it is not installed."""
    try:
        import pyiceberg.catalog
    except ImportError as ex:
        raise SetupError(
            "Apache Iceberg needs the package pyiceberg; install it with: pip install 'millwheel-spark[iceberg]'"
        ) from ex
    return pyiceberg.catalog


class IcebergTable(LakeTable):
    """``catalog`` has the settings of pyiceberg's ``load_catalog``, and as ``name`` that of the catalog. The argument
    ``name`` is ``namespace.table``."""

    def __init__(self, catalog: Mapping[str, Any], name: str) -> None:
        self.where = f"the Iceberg table {name}"
        self._settings = {key: str(value) for key, value in catalog.items()}
        self._catalog_name = self._settings.pop("name", "default")
        self._name = name
        self._catalog: Any = None

    def look(self) -> IcebergVersion:
        catalogs = library()
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            if self._catalog is None:
                self._catalog = catalogs.load_catalog(self._catalog_name, **self._settings)
            return IcebergVersion(self._catalog.load_table(self._name), self.where)
        except (NoSuchTableError, NoSuchNamespaceError) as ex:
            raise SetupError(
                f"{self.where} is not there; create it, or declare its columns with the option 'fields'"
            ) from ex
        except Exception as ex:  # catalogs raise errors of their own clients
            raise _translated(ex, self.where) from ex

    def create(self, schema: pa.Schema) -> None:
        try:
            if self._catalog is None:
                self._catalog = library().load_catalog(self._catalog_name, **self._settings)
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            self._catalog.create_table_if_not_exists(self._name, schema=schema)
        except Exception as ex:
            raise _translated(ex, self.where) from ex


class IcebergVersion(TableVersion):
    """One version of the table, loaded from the catalog."""

    def __init__(self, table: Any, where: str) -> None:
        self._table = table
        self._where = where
        self.schema = pa.schema([pa.field(f.name, f.type, f.nullable) for f in table.schema().as_arrow()])

    def mark(self, name: str) -> TableMark:
        text = self._table.properties.get(_PREFIX + name)
        if text is None:
            return TableMark()
        number, _, token = text.partition(":")
        return TableMark(int(number), int(token))

    def commit(self, change: TableChange) -> None:
        from pyiceberg.exceptions import CommitFailedException

        noted = {_PREFIX + name: f"{mark.number}:{mark.token}" for name, mark in change.marks.items()}
        # No retries of the library: it would commit on top of a version of which nobody here has seen the marks. The
        # setting is that of this object only.
        self._table.metadata.properties[_NO_RETRIES] = "0"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # there may be nothing to remove
                with self._table.transaction() as transaction:
                    if change.remove is not None:
                        transaction.delete(_filter(change.remove))
                    transaction.append(change.add, snapshot_properties=noted)
                    transaction.set_properties(noted)
        except CommitFailedException as ex:
            raise TableConflictError(f"another commit was first: {_reason(ex)}") from ex
        except Exception as ex:
            raise _translated(ex, self._where) from ex

    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table.scan(row_filter=_filter(keys)).to_arrow().to_pylist()
        return rows


def _filter(keys: pa.Table) -> Any:
    from pyiceberg.table.upsert_util import create_match_filter

    return create_match_filter(keys, keys.schema.names)


def _reason(ex: Exception) -> str:
    return " ".join(str(ex).split())[:_REASON_LETTERS]


def _translated(ex: Exception, where: str) -> MillwheelError:
    if isinstance(ex, MillwheelError):
        return ex
    return UnavailableError(f"{where} does not answer: {type(ex).__name__}: {_reason(ex)}")
