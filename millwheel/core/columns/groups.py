"""The groups of an aggregation in columns: how several become one, their results, and how they
become groups in rows, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.core.aggregates.candidates import RowCandidates
from millwheel.core.aggregates.columns import ColumnAggregate, Inexact
from millwheel.core.aggregates.families.distinct import LastingDistincts
from millwheel.core.columns.batch import Int64s, fits_key, key_list
from millwheel.core.columns.groups_frame import (
    COUNT,
    END,
    KEY,
    START,
    by_key,
    by_number,
    by_window,
    key_parts,
)
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Group
from millwheel.core.windows.windows import Forever, Sessions, Window, WindowFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPlan:
    """The form of the groups of an aggregation, which is the same for all kinds of records.

    Groups frames have, beside ``key``, ``start``, ``end`` and ``count``, the columns of the
    ``aggregates``, named after their index: ``a0``, ``a0f``, ``a1``, … ``key_names`` are the parts
    of a key, of which results have those ``shown``.
    ``fires_once``: a window fires once, as the watermark passes its end (a key window: once at each
    of its steps), and columns hold its state. Otherwise the state is in rows, and the columns only
    group the records. ``versions``: its groups have no end, columns hold them, and each bundle
    emits those that it has changed. ``empties``: a window that has fired is empty. ``inferred`` are
    the types of undeclared fields, by name; ``follows``: the types of the fields are those of the
    expressions that have made them.
    """

    window: WindowFunction
    names: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]
    key_names: tuple[str, ...]
    key_dtype: Any
    floats: tuple[str, ...]
    shown: tuple[str, ...] = ()
    fires_once: bool = True
    versions: bool = False
    empties: bool = True
    inferred: tuple[tuple[str, str], ...] = ()
    follows: bool = False

    @property
    def held(self) -> bool:
        """Whether columns hold its state."""
        return self.fires_once or self.versions

    @property
    def grows(self) -> bool:
        """Whether its state takes more, the more records there are."""
        return any(aggregate.grows for aggregate in self.aggregates)

    @property
    def counting(self) -> tuple[LastingDistincts, ...]:
        """The aggregates of which a segment stores only the new values."""
        return tuple(each for each in self.aggregates if isinstance(each, LastingDistincts))

    @property
    def whole(self) -> bool:
        """Whether it keeps records with all of their fields."""
        return bool(self.of_rows)

    @property
    def of_rows(self) -> tuple[RowCandidates, ...]:
        """The aggregates that keep whole records."""
        return tuple(each for each in self.aggregates if isinstance(each, RowCandidates))

    def alike(self, groups: Sequence[pl.DataFrame]) -> bool:
        """Whether all whole records that groups have are of one type."""
        kept = [name for each in self.of_rows for name in each.dtypes]
        return all(each[name].dtype == groups[0][name].dtype for each in groups for name in kept)

    @property
    def key_types(self) -> dict[str, Any]:
        """The type of each part of a key."""
        types = [field.dtype for field in self.key_dtype.fields] if len(self.key_names) > 1 else []
        return dict(zip(self.key_names, types or [self.key_dtype], strict=True))

    @property
    def schema(self) -> dict[str, Any]:
        """The types of a groups frame."""
        columns: dict[str, Any] = {
            KEY: self.key_dtype,
            START: pl.Int64,
            END: pl.Int64,
            COUNT: pl.Int64,
        }
        for aggregate in self.aggregates:
            columns.update(aggregate.dtypes)
        return columns

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Several groups frames as one, with one row per (key, window). Raises Inexact where they
        have whole records of different types."""
        if not self.alike(groups):
            raise Inexact
        whole, count = pl.concat(groups), pl.col(COUNT).sum()
        if isinstance(self.window, Forever):
            columns = whole.drop(KEY).get_columns()
            merged = by_key(whole[KEY], columns, [count, *self._merged()], self.schema)
        else:
            merged = by_window(whole, [count, *self._merged()], self.schema)
        return self._together(merged)

    def merge_numbered(self, groups: pl.DataFrame, numbers: Int64s) -> pl.DataFrame:
        """One row for each of the ``numbers``: groups of one key, whose windows become the one that
        spans them."""
        return by_number(groups, numbers, [pl.col(COUNT).sum(), *self._merged()], self.schema)

    def _merged(self) -> list[pl.Expr]:
        return [column for aggregate in self.aggregates for column in aggregate.merged()]

    def _together(self, groups: pl.DataFrame) -> pl.DataFrame:
        for each in self.of_rows:
            groups = each.together(groups)
        return groups

    def results(self, groups: pl.DataFrame) -> pl.DataFrame:
        """The records that the panes of closed windows become, see ``panes.pane_row``. Raises
        Inexact."""
        undeclared = self.follows or bool(self.inferred)
        if undeclared and any(each.of_no_floats(groups) for each in self.aggregates):
            # an empty sum is a whole 0 there, as the field is not declared to be a float
            raise Inexact
        results = {aggregate: aggregate.result(groups) for aggregate in self.aggregates}
        columns = dict(zip(self.shown, key_parts(groups[KEY]), strict=False))
        if not isinstance(self.window, Forever):
            columns |= {"window_start": groups[START], "window_end": groups[END]}
        for name, aggregate in zip(self.names, self.aggregates, strict=True):
            columns[name] = results[aggregate]
        return pl.DataFrame([column.alias(name) for name, column in columns.items()])

    def row_groups(
        self, groups: pl.DataFrame, chosen: Mapping[ColumnAggregate, Iterator[Any]] | None = None
    ) -> Iterator[tuple[Key, Group]]:
        """Groups with the accumulators of the row form; ``chosen`` has those that columns do not
        hold."""
        accs = chosen or {}
        groups = groups.drop([name for each in accs for name in each.dtypes])
        spans = isinstance(self.window, Forever)
        begins = spans or isinstance(self.window, Sessions)  # with their first record
        for key, row in zip(key_list(groups[KEY]), groups.iter_rows(named=True), strict=True):
            acc = [
                next(accs[each]) if each in accs else each.to_acc(row) for each in self.aggregates
            ]
            yield (
                key,
                Group(
                    Window(row[START], row[END]),
                    acc,
                    row[COUNT],
                    row[START] if begins else None,
                    row[END] - 1 if spans else None,
                ),
            )

    def from_row_groups(
        self, groups: Sequence[tuple[Key, Group]], like: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """The inverse of :meth:`row_groups`. Whole records get the types that they have in the
        groups ``like``, if there are any. Raises Inexact."""
        if not groups:
            return pl.DataFrame(schema=self.schema)
        rows, of_rows = [], self.of_rows
        kinds = [*self.key_types.values()]
        for key, group in groups:
            own = key if len(kinds) > 1 and type(key) is tuple else (key,)
            # Polars makes a null of some values that do not fit into a part of a key.
            if len(own) != len(kinds) or not all(map(fits_key, own, kinds)):
                raise Inexact
            named = dict(zip(self.key_names, key, strict=True)) if len(self.key_names) > 1 else key
            parts: list[Any] = [named, group.window.start, group.window.end, group.count]
            for aggregate, acc in zip(self.aggregates, group.acc, strict=True):
                parts += [] if aggregate in of_rows else aggregate.from_acc(acc)
            rows.append(parts)
        kept = {name for each in of_rows for name in each.dtypes}
        schema = {name: kind for name, kind in self.schema.items() if name not in kept}
        try:
            frame = pl.DataFrame(rows, schema, orient="row", strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            raise Inexact from None
        accs = zip(*(group.acc for _, group in groups), strict=True)
        pairs = zip(self.aggregates, accs, strict=True)
        added = [
            each.from_accs(own, like) for each, own in pairs if isinstance(each, RowCandidates)
        ]
        return frame.with_columns(added).select(list(self.schema))

    def of_key(self, key: Key) -> pl.Expr:
        """Whether a group is one of ``key``. No group is one of a key of other types."""
        fields = self.key_dtype.fields if len(self.key_names) > 1 else ()
        parts = key if type(key) is tuple and fields else (key,)
        kinds = [field.dtype for field in fields] or [self.key_dtype]
        if len(parts) != len(kinds) or not all(map(fits_key, parts, kinds)):
            return pl.lit(False)
        if not fields:
            return pl.col(KEY).eq(key)
        named = zip(fields, parts, strict=True)
        return pl.all_horizontal(
            pl.col(KEY).struct.field(field.name) == part for field, part in named
        )

    def typed(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the row form with the types of columns: an empty sum of floats is 0.0."""
        for name in self.floats:
            row[name] = float(row[name])
        return row
