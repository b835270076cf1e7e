"""Runs a join of records that come at any time on whole bundles.

Beyond ``_MOST_BYTES``, half of the records leave memory for the archive of the shard, in columns,
too: those of the keys without a new record for the longest time. Hot keys go on in rows instead. A
bundle reads only its own keys from the archive.

Rows keep the records of a key for ever, but its new records need not be joined in rows for that:
they are kept in columns, and meet the rows of the other stream, which are read for all keys of a
bundle together. A record goes on in rows, beside earlier ones, only when its key leaves. So a key
is in one form or in both, and its new records look at both. Records that are taken in rows find all
that is kept of their key there: the archive has none of it.

Retractions, and keys whose retractions wait for their records, go to the row form: all that columns
hold of such a key leaves before. So do keys of which a row that stands alone in the result
(``left``, …) is in rows as its first partner comes: only rows note whether it stands alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from millwheel.adapters.ports import StoreView
from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.changes import retractions_of
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.pairs import AT, INPUT, VALUE, encoded
from millwheel.core.columns.state.alone_rows import AloneRows, alone_changes
from millwheel.core.columns.state.columns_to_rows import (
    Left,
    all_keys,
    encoded_keys,
    is_among,
    keys_of,
    where,
)
from millwheel.core.columns.state.near_pairs import (
    NearPairing,
    alike,
    pairing_in_rows,
    with_keys_of,
)
from millwheel.core.formats.store_layout import STATE, key_in
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, key_from_bytes
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Record
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import IntervalJoinSpec, JoinKind, RegularJoinSpec
from millwheel.core.windows.panes import as_retraction
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.keyed_joins.columns import (
    ColumnJoinOfBatches,
    ColumnJoinOperator,
    Mask,
    SidesOfKey,
    without,
)
from millwheel.engine.workers.operators.keyed_joins.regular import Row
from millwheel.engine.workers.state.archive import Archive, validate_archive
from millwheel.engine.workers.state.column_segments import ColumnShard
from millwheel.errors import RecordError

_MANY = 500_000
"""Rows of a key that a bundle does not read at once: its records go on in rows, where their results
may span several bundles. Measured with one new record: to read 100,000 rows and join them takes 0.8
s of processor time, once for a bundle; in rows it is 0.9 s, for each record. So to read takes some
4 s of a step; with 1.5 million rows a step took more than 20 s, and 1.4 GB."""


_HOT = 4_000
"""Records of a key that leave for rows, not together for the archive: the results of its next
partner may span several bundles there. To move one takes some 30 µs, so a key moves part by part,
and not when its partner comes."""


class RowsOfKeys(Protocol):
    """The further methods that such a join needs of its row form."""

    def rows_of(
        self, ctx: Any, side: int, keys: Sequence[Key], most: int
    ) -> Iterator[tuple[int, list[Row] | None]]:
        """The rows of a side of some keys, by the number of the key; None where they have more than
        ``most`` entries."""

    def with_partners(self, side: int, by_key: Mapping[Key, SidesOfKey]) -> set[Key]:
        """The keys whose rows of a side, which are to be kept, have partners."""

    def decides(self, side: int, rows: Iterable[Row], met: bool) -> bool:
        """Whether new records of a key with these rows go by rows; ``met``: a partner comes."""

    def is_deep(self, data: bytes) -> bool:
        """Whether an encoded record is taken in rows, since it nests too deeply for a pair."""

    def produce_alone(self, ctx: Any, side: int, data: bytes, at: int, weight: int) -> None:
        """Emit an encoded record of the current key on its own; a negative ``weight`` takes it
        back."""


class LastingJoinOperator(ColumnJoinOperator):
    """The operator of a join of records at any time in columns. See the head of this file."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        instance: Any = self._instance
        self._rows: RowsOfKeys = instance
        self._only_pairs = self._pairing.kind is JoinKind.INNER
        self._archive = Archive(self._shard.name, self._shard.store)

    def validate(self, state: StoreView) -> None:
        super().validate(state)
        validate_archive(self._archive, state)

    def kept(self) -> Counter[tuple[Key, int, int, bytes]]:
        """The records as rows would have them if all had left."""
        kept: Counter[tuple[Key, int, int, bytes]] = Counter()
        groups = [segment.groups for segment in self._kept.segments()]
        groups += self._archive.all_records(self._shard.store)
        by_key = self._left_by_key([Left(each, 0) for each in groups])
        stored = {key_in(entry) for entry, _ in self._shard.store.scan(STATE)}
        for key in {*by_key, *stored}:
            self._context.point(key, MIN_TIME)
            for side, rows in enumerate(by_key.get(key, ())):
                self._join.keep(self._context, side, rows)
            kept.update((key, *each) for each in self._join.kept())
        self._state.forget()
        return kept

    # --- which keys are in columns ----------------------------------------------------------------

    def _in_columns(self, batches: Sequence[AnyBatch], bundle: Bundle) -> list[Mask]:
        self._recalled.clear()
        taken = self._chosen(batches, bundle)
        if self._archive:
            apart = [~mask for mask in taken]
            if many := self._recall_archive(batches, taken, bundle):
                self._let_go(many, bundle)
                taken = without(many, taken, batches)
            self._let_go_of(_keys_of(batches, apart), bundle)
        return taken

    def _chosen(self, batches: Sequence[AnyBatch], bundle: Bundle) -> list[Mask]:
        """The same without a look at the archive."""
        if self._form.in_rows and not self._kept:
            return [np.zeros(len(batch), np.bool_) for batch in batches]
        back = self._for_rows(batches) | self._context.suspension.keys()
        self._let_go(back, bundle)
        if self._form.in_rows:
            taken = self._form.leaving.stays(batches)
        else:
            taken = [np.ones(len(batch), np.bool_) for batch in batches]
        taken = without(back, taken, batches)
        if self._form.some_in_rows:
            owed = self._recall(batches, taken)
            self._let_go(owed, bundle)
            taken = without(owed, taken, batches)
        return taken

    def _recall_archive(
        self, batches: Sequence[AnyBatch], taken: Sequence[Mask], bundle: Bundle
    ) -> set[Key]:
        """Read the partners in the archive for the records of a bundle. Returns the keys that have
        too many."""
        many: set[Key] = set()
        for side, stream in enumerate(self._pairing.streams):
            # whether a record stands alone depends on those of its own stream, too
            asks = [
                mask if not self._only_pairs or batch.stream != stream else np.zeros_like(mask)
                for batch, mask in zip(batches, taken, strict=True)
            ]
            archived = self._archive.of_keys(_keys_of(batches, asks), side, bundle.overlay)
            if sum(frame.height for frame in archived) > _MANY:
                many |= set(key_list(_with_more(archived, _MANY)))
            self._recalled += archived
        return many

    def _leave(self, count: int, bundle: Bundle) -> None:
        if self._form.in_rows:
            super()._leave(count, bundle)
        elif self._kept.size() > self._form.most_bytes:
            left = self._form.leaving.oldest(self._form.most_bytes // 2)
            hot = _with_more([each.groups for each in left], _HOT)
            masks = [is_among(each.groups[KEY], [hot]) for each in left]
            pairs = list(zip(left, masks, strict=True))
            self._archive.add(
                [each.groups.filter(~pl.Series(own)) for each, own in pairs], bundle.overlay
            )
            parts = (each.groups.filter(pl.Series(own)) for each, own in pairs if own.any())
            self._hand_over([Left(part, 0) for part in parts], bundle)

    def _let_go(self, keys: set[Key], bundle: Bundle) -> None:
        if keys:
            self._let_go_of([encoded_keys(keys)], bundle)

    def _let_go_of(self, keys: Sequence[pl.Series], bundle: Bundle) -> None:
        left = self._form.leaving.taken_out(keys)
        left += [Left(each, 0) for each in self._archive.taken_out(keys, bundle.overlay)]
        self._keep_in_rows(left, bundle)

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keep the records of these segments in rows, with the archived ones of the same keys."""
        keys = [segment.groups[KEY] for segment in segments]
        archived = [Left(each, 0) for each in self._archive.taken_out(keys, bundle.overlay)]
        self._keep_in_rows([*segments, *archived], bundle)

    def _look_for_partners(self, by_key: Mapping[Key, SidesOfKey]) -> None:
        for side in range(len(self._pairing.streams)):
            for key in self._rows.with_partners(side, by_key):
                for row in by_key[key][side]:
                    row.met = True

    def _for_rows(self, batches: Sequence[AnyBatch]) -> set[Key]:
        """The keys of records that take back others, or may be too deep for a pair. Sources alone
        can bring the first here, as records with the field that marks them."""
        return {
            record.key
            for batch in batches
            if not isinstance(batch, ColumnBatch)
            for record in self._records(batch, ChannelName(""))
            if as_retraction(record.value) is not None or self._is_deep(record)
        }

    def _is_deep(self, record: Record) -> bool:
        if self._only_pairs:
            return False
        side = self._pairing.streams.index(record.stream)
        try:
            return self._rows.is_deep(self._join.row_of(side, record).data)
        except RecordError:
            return True

    def _recall(self, batches: Sequence[AnyBatch], taken: Sequence[Mask]) -> set[Key]:
        """Read the partners in rows for the records of a bundle. Returns the keys that go by rows
        all the same."""
        owed: set[Key] = set()
        pairs = list(zip(batches, taken, strict=True))
        for side, stream in enumerate(self._pairing.streams):
            partners = [pair for pair in pairs if pair[0].stream != stream]
            # whether a record stands alone depends on those of its own stream, too
            own = [] if self._only_pairs else [pair for pair in pairs if pair[0].stream == stream]
            read: set[Key] = set()
            for batch, mask in (*partners, *own):
                if not mask.any():
                    continue
                keys = keys_of(where(batch, mask)).unique()
                names = key_list(keys)
                numbers, times, values = [], [], []
                for number, rows in self._rows.rows_of(self._context, side, names, _MANY):
                    if names[number] in read:
                        continue
                    if rows is None or self._rows.decides(side, rows, batch.stream != stream):
                        owed.add(names[number])
                        continue
                    for row in rows:
                        numbers += [number] * len(row.times)
                        times += row.times
                        values += [row.data] * len(row.times)
                read.update(names)
                if numbers:
                    found = self._pairing.recalled(side, keys.gather(numbers), times, values)
                    self._recalled.append(found)
        return owed

    # --- results ----------------------------------------------------------------------------------

    def _produce_changes(
        self, new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame], bundle: Bundle, late: bool
    ) -> None:
        if self._only_pairs:
            super()._produce_changes(new, kept, bundle, late)
            return
        kind = self._pairing.kind
        new, kept = alike(new, with_keys_of(new, kept))
        pairs = self._pairing.pairs(new, kept, None) if kind.in_pairs else None
        changes = alone_changes(kind, new, kept)
        self._produce_alone([each for each in changes if each.sign < 0], [*new, *kept], bundle)
        if pairs is not None:
            self._produce(pairs, bundle)
        self._produce_alone([each for each in changes if each.sign > 0], [*new, *kept], bundle)

    def _produce_alone(
        self, changes: Sequence[AloneRows], frames: Sequence[pl.DataFrame], bundle: Bundle
    ) -> None:
        """Emit rows that begin or cease to stand alone. ``frames`` have the types of the records of
        either stream."""
        for side, sign, rows in ((each.side, each.sign, each.rows) for each in changes):
            other_type = self._pairing.type_of(1 - side, frames)
            if VALUE not in rows.schema and (other_type or not self._pairing.kind.in_pairs):
                values = self._pairing.rows_alone(side, rows, other_type)
                values = values if sign > 0 else retractions_of(values)
                keys, at = self._pairing.keys_of(rows), rows[AT].to_numpy()
                for stream in self._outputs:
                    bundle.outputs.produce_columns(
                        ColumnBatch(stream, np.array([], np.int64), at, keys, values)
                    )
                continue
            each_row = (
                encoded(rows.with_columns(pl.lit(side, pl.Int8).alias(INPUT)))
                .select(KEY, VALUE, AT)
                .iter_rows()
            )
            for key, data, at in each_row:
                self._context.point(key_from_bytes(key), at)
                self._rows.produce_alone(self._context, side, data, at, sign)


def _keys_of(batches: Sequence[AnyBatch], masks: Sequence[Mask]) -> list[pl.Series]:
    """The keys of the records for which the masks are true, each once for a batch."""
    pairs = zip(batches, masks, strict=True)
    return [keys_of(where(batch, mask)).unique() for batch, mask in pairs if mask.any()]


def _with_more(frames: Sequence[pl.DataFrame], most: int) -> pl.Series:
    """The keys that have more than ``most`` records in frames, of which there are some."""
    by_key = all_keys(frames).to_frame(KEY).group_by(KEY).len()
    return by_key.filter(pl.col("len") > most)[KEY]


def has_column_form(spec: ComputationSpec) -> bool:
    """Whether a computation is such a join, declared or not."""
    match spec.work:
        case IntervalJoinSpec(kind=JoinKind.INNER):
            return True
        case RegularJoinSpec(ttls_us=ttls):
            return ttls == (None, None)
    return False


def column_join(
    pairing: NearPairing | None, shard: ColumnShard, few: int, spec: ComputationSpec, *rest: Any
) -> ColumnJoinOperator:
    """The operator of a join of two streams; no ``pairing``: it takes no records in
    columns."""
    make = ColumnJoinOfBatches if isinstance(spec.work, IntervalJoinSpec) else LastingJoinOperator
    if pairing is None:
        return make(pairing_in_rows(spec), shard, None, spec, *rest)
    return make(pairing, shard, few, spec, *rest)
