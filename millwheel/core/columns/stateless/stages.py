"""The column form of steps and branches, for fields of known types: one filter or projection after
the other over a whole bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.clean import clean_rows, is_clean
from millwheel.core.expressions.inner_fields import kind_with_inner, with_inner_fields
from millwheel.core.expressions.terms import NoColumns, Term
from millwheel.core.lazy_polars import dtype, pl

Mask = npt.NDArray[np.bool_]
_INT64 = 2**63  # Fixed: integers from here on are not an int64


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """One step. ``kinds`` are the types of the fields that it computes with, which must hold
    neither nulls (but for ``takes_nulls``) nor NaN; ``same`` those of fields that it passes on,
    which may. ``exact`` are true for the records for which columns have the values of the row form.
    Then comes a filter (``keeps``), a projection (``makes``), or the ``lists`` of a field, with
    every entry of which its record goes on."""

    kinds: Mapping[str, str]
    same: Mapping[str, str]
    exact: tuple[pl.Expr, ...] = ()
    keeps: pl.Expr | None = None
    makes: tuple[pl.Expr, ...] = ()
    lists: tuple[str, pl.Expr] | None = None
    takes_nulls: bool = False

    def fitting(self, frame: pl.DataFrame) -> Mask:
        """Which records have the values of the row form here."""
        if any(kind_with_inner(frame.schema.get(name)) != kind for name, kind in self.same.items()):
            return np.zeros(frame.height, np.bool_)
        fits = np.ones(frame.height, np.bool_)
        if not is_clean(frame, self.kinds, self.takes_nulls):
            clean = clean_rows(frame, self.kinds, self.takes_nulls)
            if clean is None:
                return np.zeros(frame.height, np.bool_)
            fits = clean
        # One after the other: the check of a result presumes that its parts are exact.
        for exact in self.exact:
            if not fits.any():
                break
            fits[fits] = _mask(frame if fits.all() else frame.filter(pl.Series(fits)), exact)
        return fits

    def keeping(self, frame: pl.DataFrame) -> tuple[Mask, Mask]:
        """Which records have the truth of the row form, and which of these a filter keeps."""
        assert self.keeps is not None
        fits = self.fitting(frame)
        kept = np.zeros(frame.height, np.bool_)
        if fits.any():
            kept[fits] = _mask(frame.filter(pl.Series(fits)), self.keeps)
        return fits, kept


@dataclass(frozen=True, slots=True)
class Way:
    """A stream that records go to, all of them or those with ``keeps``."""

    stream: str
    keeps: pl.Expr | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """The results of a batch. ``parts`` has the records of each stream, ``unmatched`` counts the
    records that no branch takes. ``for_rows``: the indexes of the records that columns have no
    result for; nothing in ``parts`` is of them."""

    parts: list[ColumnBatch]
    unmatched: int
    for_rows: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StatelessPlan:
    """Steps, then the ways out: a record goes to each of the ``ways`` whose condition holds, to the
    first of them (``first_only``), or to ``rest``. ``fields`` are the types of the results, and
    ``inner`` the fields within fields that are read of the input."""

    stages: tuple[ColumnStep, ...]
    ways: tuple[Way, ...]
    fields: Mapping[str, str]
    rest: tuple[str, ...] = ()
    first_only: bool = True
    inner: tuple[str, ...] = ()

    def passed(self, batch: ColumnBatch) -> Passed:
        """The results of a batch, in the order of its records."""
        indexes = np.arange(len(batch))
        frame, for_rows = with_inner_fields(batch.frame, self.inner), []
        for stage in self.stages:
            fits = stage.fitting(frame)
            if not fits.all():
                for_rows.append(np.unique(indexes[~fits]))
                fits = _of_others(indexes, fits)
                frame, indexes = frame.filter(pl.Series(fits)), indexes[fits]
            if stage.keeps is not None:
                mask = _mask(frame, stage.keeps)
                if not mask.all():
                    frame, indexes = frame.filter(pl.Series(mask)), indexes[mask]
            elif stage.makes:
                frame = frame.select(stage.makes)
            elif stage.lists is not None:
                frame, indexes = _each_entry(frame, indexes, *stage.lists)
        parts: list[ColumnBatch] = []
        taken = np.zeros(len(indexes), np.bool_)
        masks = list(self._masks(frame))
        frame = frame.drop(self.inner, strict=False)
        for way, mask in masks:
            taken |= mask
            parts.append(part_of(batch, way.stream, indexes, frame, mask))
        parts += [part_of(batch, stream, indexes, frame, ~taken) for stream in self.rest]
        unmatched = 0 if self.rest else int(np.count_nonzero(~taken))
        return Passed(
            [part for part in parts if len(part)],
            unmatched,
            np.sort(np.concatenate(for_rows)) if for_rows else np.array([], np.int64),
        )

    def _masks(self, frame: pl.DataFrame) -> Iterator[tuple[Way, Mask]]:
        """Which records take each way."""
        free = np.ones(frame.height, np.bool_)
        for way in self.ways:
            if way.keeps is None:
                yield way, np.ones(frame.height, np.bool_)
                continue
            mask = _mask(frame, way.keeps)
            if self.first_only:
                mask = mask & free
                free &= ~mask
            yield way, mask


def _of_others(indexes: npt.NDArray[np.int64], fits: Mask) -> Mask:
    """The rows of records whose rows all fit: a record may have become several rows."""
    return ~np.isin(indexes, indexes[~fits])


def _each_entry(
    frame: pl.DataFrame, indexes: npt.NDArray[np.int64], name: str, lists: pl.Expr
) -> tuple[pl.DataFrame, npt.NDArray[np.int64]]:
    """The records, each once for every entry of its list."""
    frame = frame.with_columns(lists.alias(name))
    counts = frame[name].list.len().to_numpy()
    return frame.explode(name), np.repeat(indexes, counts)


def _mask(frame: pl.DataFrame, condition: pl.Expr) -> Mask:
    mask: Mask = frame.select(condition).to_series().to_numpy()
    # a condition that reads no field is one value, for a frame of any height
    return mask if len(mask) == frame.height else np.repeat(mask, frame.height)


def part_of(
    batch: ColumnBatch,
    stream: str,
    indexes: npt.NDArray[np.int64],
    frame: pl.DataFrame,
    mask: Mask,
) -> ColumnBatch:
    """The records of the mask, unnumbered, with the keys and times that they came with."""
    if not mask.all():
        frame, indexes = frame.filter(pl.Series(mask)), indexes[mask]
    whole = len(indexes) == len(batch) and np.array_equal(indexes, np.arange(len(batch)))
    return ColumnBatch(
        stream,
        np.array([], np.int64),
        batch.timestamps if whole else batch.timestamps[indexes],
        batch.keys if whole else batch.keys[indexes],
        frame,
        batch.born_us,
    )


def column_of(term: Term) -> pl.Expr:
    """The column of a term, which may be a constant. Raises NoColumns."""
    if term.constant is None:
        return term.column
    if type(term.constant) is int and not -_INT64 <= term.constant < _INT64:
        raise NoColumns("a constant does not fit into 64 bits")
    return constant_column(term.constant, dtype(term.kind))


def constant_column(value: Any, kind: Any) -> pl.Expr:
    """A column that has one value for each record of a frame."""
    return pl.repeat(value, pl.len(), dtype=kind)
