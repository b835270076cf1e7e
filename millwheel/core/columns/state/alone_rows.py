"""The changes that a bundle makes to the records that stand alone in the result of a join of all
records: in ``left`` records without a partner, in ``semi`` records with one.

No record is taken back in columns. So a key has partners from the first one on, and the records
kept before that one change once. A record that comes and finds its first partner in one bundle
never stood alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.pairs import AT
from millwheel.core.columns.state.near_pairs import NUMBER, numbered, side_of
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.work import JoinKind

_FIRST, _FIRST_AT = "first", "first at"


@dataclass(frozen=True, slots=True)
class AloneRows:
    """Records of one ``side`` that stand alone from now on (``sign`` 1), or no longer (-1), with
    the times of these changes."""

    side: int
    sign: int
    rows: pl.DataFrame


def alone_changes(
    kind: JoinKind, new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame]
) -> list[AloneRows]:
    """The changes by new records, which have their numbers. ``kept`` are all those of their keys
    that came before; keys have one form."""
    kept, changes = numbered(kept), list[AloneRows]()
    for side, without in enumerate(kind.without_partner):
        if without or (kind is JoinKind.SEMI and side == 0):
            changes += _of_side(side, without, new, kept)
    return [each for each in changes if each.rows.height]


def _of_side(
    side: int, without: bool, new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame]
) -> Iterator[AloneRows]:
    """The changes of one side. ``without``: records without a partner stand in the result; else
    records with one."""
    no_keys = new[0].select(KEY).clear()
    before = [no_keys, *(frame.select(KEY) for frame in side_of(kept, 1 - side))]
    met = pl.concat(before).unique()
    first = _first(side_of(new, 1 - side), no_keys).join(met, on=KEY, how="anti")
    later = pl.max_horizontal(AT, _FIRST_AT).alias(AT)
    if was_there := side_of(kept, side):
        changed = pl.concat(was_there).join(first, on=KEY, maintain_order="left")
        yield AloneRows(side, -1 if without else 1, changed.with_columns(later))
    if not (came := side_of(new, side)):
        return
    whole = pl.concat(came)
    if without:
        with_partner = pl.concat([met, first.select(KEY)])
        stay = whole.join(with_partner, on=KEY, how="anti", maintain_order="left")
        yield AloneRows(side, 1, stay)
        return
    yield AloneRows(side, 1, whole.join(met, on=KEY, how="semi", maintain_order="left"))
    waited = pl.when(pl.col(_FIRST) < pl.col(NUMBER)).then(pl.col(AT)).otherwise(later).alias(AT)
    with_first = whole.join(first, on=KEY, maintain_order="left")
    yield AloneRows(side, 1, with_first.with_columns(waited))


def _first(partners: Sequence[pl.DataFrame], no_keys: pl.DataFrame) -> pl.DataFrame:
    """Of each key the partner that comes first: its number, and its time."""
    none = no_keys.with_columns(
        pl.lit(0, pl.Int64).alias(_FIRST), pl.lit(0, pl.Int64).alias(_FIRST_AT)
    )
    names = (KEY, pl.col(NUMBER).alias(_FIRST), pl.col(AT).alias(_FIRST_AT))
    partners_of_key = pl.concat([none, *(frame.select(*names) for frame in partners)])
    return partners_of_key.sort(_FIRST).unique(KEY, keep="first")
