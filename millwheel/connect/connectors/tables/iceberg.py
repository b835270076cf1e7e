"""Apache Iceberg tables. Number and token of a shard are properties of the table, and stand in the
snapshot's summary.

A property alone would be lost or doubled in a race, because a commit of properties is checked
against nothing. So each commit of ours adds a snapshot, even if it has no rows: of two that began
with the same snapshot, the second one fails.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millwheel.connect.connectors.tables.table import (
    LakeTable,
    TableChange,
    TableConflictError,
    TableMark,
    TableVersion,
    failed,
    reason,
)
from millwheel.errors import SetupError

_PREFIX = "millwheel.mark."
_USER = re.compile(r"//[^/@]*@")  # user and password in an address
_NO_RETRIES = "commit.retry.num-retries"


def library() -> Any:
    """The ``pyiceberg.catalog`` module. Raises SetupError if it is not installed."""
    try:
        import pyiceberg.catalog
    except ImportError as ex:
        raise SetupError(
            "Apache Iceberg needs the package pyiceberg; install it with: pip install"
            " 'millwheel-spark[iceberg]'"
        ) from ex
    return pyiceberg.catalog


class IcebergTable(LakeTable):
    """``catalog`` has the settings of pyiceberg's ``load_catalog``, and as ``name`` that of the
    catalog. The argument ``name`` is ``namespace.table``."""

    def __init__(self, catalog: Mapping[str, Any], name: str) -> None:
        self._settings = {key: str(value) for key, value in catalog.items()}
        self._catalog_name = self._settings.pop("name", "default")
        uri = _USER.sub("//", self._settings.get("uri", ""))
        self.where = (
            f"the Iceberg table {name} of the catalog"
            f" {self._catalog_name}{f' at {uri}' if uri else ''}"
        )
        self.identity = ("iceberg", name, self._catalog_name, *sorted(self._settings.items()))
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
                f"{self.where} is not there; create it, or declare its columns with the option"
                " 'fields'"
            ) from ex
        except BaseException as ex:  # catalogs raise errors of their own clients
            raise failed(ex, self.where) from ex

    def create(self, schema: pa.Schema) -> None:
        try:
            if self._catalog is None:
                self._catalog = library().load_catalog(self._catalog_name, **self._settings)
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            self._catalog.create_table_if_not_exists(self._name, schema=schema)
        except BaseException as ex:
            raise failed(ex, self.where) from ex


class IcebergVersion(TableVersion):
    """One version of the table, loaded from the catalog."""

    def __init__(self, table: Any, where: str) -> None:
        self._table = table
        self._where = where
        self.schema = pa.schema(
            [pa.field(f.name, f.type, f.nullable) for f in table.schema().as_arrow()]
        )

    def mark(self, name: str) -> TableMark:
        text = self._table.properties.get(_PREFIX + name)
        if text is None:
            return TableMark()
        number, _, token = text.partition(":")
        return TableMark(int(number), int(token))

    def commit(self, change: TableChange) -> None:
        from pyiceberg.exceptions import CommitFailedException

        noted = {
            _PREFIX + name: f"{mark.number}:{mark.token}" for name, mark in change.marks.items()
        }
        # No retries of the library: it would commit on top of a version whose marks were not read.
        # The setting is that of this object only.
        self._table.metadata.properties[_NO_RETRIES] = "0"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # there may be nothing to remove
                with self._table.transaction() as transaction:
                    add = change.add
                    if change.remove is not None and change.remove.num_rows:
                        others = self._beside(change.remove)
                        transaction.delete(_superset(change.remove))
                        add = pa.concat_tables([add, others.cast(add.schema)])
                    transaction.append(add, snapshot_properties=noted)
                    transaction.set_properties(noted)
        except CommitFailedException as ex:
            raise TableConflictError(f"another commit was first: {reason(ex)}") from ex
        except BaseException as ex:
            raise failed(ex, self._where) from ex

    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _divided(self._found(keys), keys)[0].to_pylist()
        return rows

    def _beside(self, keys: pa.Table) -> pa.Table:
        """The rows that are removed with those of ``keys``, and must be added again."""
        if keys.num_columns == 1:
            return self.schema.empty_table()
        return _divided(self._found(keys), keys)[1]

    def _found(self, keys: pa.Table) -> pa.Table:
        try:
            return self._table.scan(row_filter=_superset(keys)).to_arrow()
        except BaseException as ex:
            raise failed(ex, self._where) from ex


def _superset(keys: pa.Table) -> Any:
    """A filter for rows with one of these keys, and perhaps others: any mixture of their values. A
    filter for exactly them has a step for each, over which pyarrow recurses: tens of thousands end
    the process."""
    from pyiceberg.expressions import AlwaysTrue, And, In

    among: Any = In  # its own stub lacks the values
    condition: Any = AlwaysTrue()
    for name in keys.schema.names:
        condition = And(condition, among(name, set(keys[name].to_pylist())))
    return condition


def _divided(rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(The rows with one of the keys, the others)."""
    key_values = set(_tuples(keys))
    among = pa.array(
        [each in key_values for each in _tuples(rows.select(keys.schema.names))], pa.bool_()
    )
    return rows.filter(among), rows.filter(pc.invert(among))


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
