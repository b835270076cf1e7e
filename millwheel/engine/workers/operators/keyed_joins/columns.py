"""Runs an inner join without a window on whole bundles: the kept records of either stream are in
columnar segments, and a bundle meets them in one operation.

The row forms (interval.py, regular.py) have entries for each key. Here the kept records of a shard
are in memory, and a bundle is one segment more (:mod:`millwheel.core.columns.state.near_pairs`).
Records that columns cannot hold are kept encoded, and their pairs are made one by one.

Every key is either in columns or in rows. Few records are as quick in rows, so a shard takes whole
bundles from the first that is worth it; the keys that rows have go on there until they have nothing
left. Beyond ``_MOST_BYTES`` the keys without a new record for the longest time go on in rows, and
so do all where only small bundles come: some keys in each bundle, as in joins of windows
(:mod:`millwheel.core.columns.state.columns_to_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StoreView
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.columns.pairs import AT, INPUT, LAST, VALUE, encoded
from millwheel.core.columns.state.columns_to_rows import Left, encoded_keys, is_among, keys_of
from millwheel.core.columns.state.near_pairs import (
    NUMBER,
    NearPairing,
    TooManyPairs,
    at_of,
    kept_rows,
    other,
)
from millwheel.core.formats.codec import decode_value
from millwheel.core.formats.store_layout import STATE, key_in
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, key_from_bytes
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import DeadLetter, Record
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import still_open
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Validated
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.key_forms import FormChoice, left_in
from millwheel.engine.workers.operators.keyed_joins.interval import NearRow
from millwheel.engine.workers.state.column_segments import (
    ColumnShard,
    restore_segments,
    validate_segments,
    write_segments,
)
from millwheel.errors import RecordError

_MOST_BYTES = 32 << 20
"""Bytes of the kept records of a shard; once there are more, half of them go by rows."""
_FAN = 16
"""Segments of one size that are merged into one: a bundle looks at all of them."""
Mask = npt.NDArray[np.bool_]
SidesOfKey = tuple[list[NearRow], list[NearRow]]
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class JoinInRows(Protocol):
    """The methods that a join in columns needs of its row form."""

    def row_of(self, side: int, record: Record) -> NearRow:
        """The row of a record. Raises RecordError where it has none."""

    def keep(self, ctx: Any, side: int, rows: list[NearRow]) -> None:
        """Keep rows of the current key, which have met their partners elsewhere."""

    def produce_pair(self, ctx: Any, left: bytes, right: bytes, at: int) -> None:
        """Emit the pair of two encoded records of the current key."""

    def kept(self) -> Iterable[tuple[int, int, bytes]]:
        """Side, time and encoded value of each row of the current key. For tests."""


class ColumnJoinOperator(CallbackOperator, Validated):
    """The operator of a join without windows in columns. See the head of this file."""

    def __init__(
        self, pairing: NearPairing, shard: ColumnShard, few: int | None, *arguments: Any
    ) -> None:
        """Bundles of fewer than ``few`` records are small. None: all of them are taken in rows, and
        records that another version of the pipeline had in columns go there, too."""
        super().__init__(*arguments)
        instance: Any = self._instance
        self._join: JoinInRows = instance
        self._outputs, self._pipeline = arguments[0].outputs, arguments[1]
        self._pairing = pairing
        self._shard = shard
        self._name = arguments[0].name
        self._boundary = ColumnBoundary(self._name)
        self._kept = kept_rows(pairing, _FAN)
        self._form = FormChoice(self._kept, few or 0, _MOST_BYTES, self._has_rows)
        self._few = few
        self._recalled: list[pl.DataFrame] = []
        """Records from rows or the archive that those of the bundle meet."""
        restore_segments(self._kept, shard)
        # a new owner goes on as the last one
        self._form.in_rows = few is None or not self._kept

    def due_at(self) -> int:
        return min(super().due_at(), self._kept.due_at())

    def validate(self, state: StoreView) -> None:
        validate_segments([self._kept], self._shard.name, state)

    def kept(self) -> Counter[tuple[Key, int, int, bytes]]:
        """The number of copies of each kept record: its key, side, time and encoded value. They are
        the same in either form. For tests, between bundles."""
        kept: Counter[tuple[Key, int, int, bytes]] = Counter()
        for segment in self._kept.segments():
            rows = encoded(segment.groups).select(KEY, INPUT, AT, VALUE).iter_rows()
            kept.update((key_from_bytes(key), side, at, data) for key, side, at, data in rows)
        for key in {key_in(entry) for entry, _ in self._shard.store.scan(STATE)}:
            self._context.point(key, MIN_TIME)
            kept.update((key, *each) for each in self._join.kept())
        self._state.forget()
        in_order = Counter[tuple[Key, int, int, bytes]]()
        for (key, side, at, data), count in kept.items():
            in_order[key, side, at, _encode(decode_value(data))] += count
        return in_order

    def run(self, bundle: Bundle) -> None:
        self._kept.take_closed(bundle.watermark)
        count = sum(len(arrival.batch) for arrival in bundle.arrivals)
        if self._few is None:
            while self._kept:
                self._hand_over(self._form.leaving.next_part(), bundle)
        else:
            self._form.choose(count)
        self._context.begin(bundle)
        self._take(bundle)
        super().run(bundle)
        self._form.took_in_rows(bundle.arrivals)
        self._leave(count, bundle)
        write_segments(self._kept, self._shard.name, bundle.overlay)

    def _leave(self, count: int, bundle: Bundle) -> None:
        """Hand over the records that are too many, or not worth columns, behind a bundle of
        ``count`` records."""
        for segments in self._form.leave(count):
            self._hand_over(segments, bundle)

    # --- a bundle ---------------------------------------------------------------------------------

    def _take(self, bundle: Bundle) -> None:
        """Take the records of a bundle whose keys are not in rows. Those that cannot be joined stay
        in it, too."""
        batches = [arrival.batch for arrival in bundle.arrivals]
        taken = self._in_columns(batches, bundle)
        late = not self._pairing.lasting and any(
            batch.earliest < bundle.watermark for batch in batches
        )
        apart = [] if late else self._traced(bundle, taken)
        new, number = [], 0
        for batch, mask in zip(batches, taken, strict=True):
            for frame in self._frames(batch, mask, bundle):
                new.append(frame.with_columns(_numbers(number, frame.height)))
                number += frame.height
        met = self._meet_but_heavy(new, batches, taken, bundle, late)
        if met is None:
            self._take(bundle)
            return
        taken = met
        for index, row, span in apart:
            alone = [batches[index].rows().pick([row])]
            before, masks = bundle.outputs.lengths(), [np.array([True])]
            record = self._encoded(alone[0], masks[0])
            if record.height:
                new = [record.with_columns(_numbers(0, 1))]
                masks = self._meet_but_heavy(new, alone, masks, bundle, False, True) or masks
            taken[index][row] = masks[0][0]
            assert bundle.traced is not None
            bundle.traced.credit(span, before, bundle.outputs.lengths())
        left_in(bundle, taken)

    def _in_columns(self, batches: Sequence[AnyBatch], bundle: Bundle) -> list[Mask]:
        """Which records of each batch have a key that is, or goes, in columns."""
        return self._form.in_columns(batches, self._state.held)

    def _traced(self, bundle: Bundle, taken: Sequence[Mask]) -> list[tuple[int, int, Any]]:
        """The traced records, which are taken one by one, so that each is credited with its
        pairs."""
        if bundle.traced is None:
            return []
        apart = []
        for each in bundle.traced.records:
            if 0 <= each.arrival < len(taken) and taken[each.arrival][each.index]:
                taken[each.arrival][each.index] = False
                apart.append((each.arrival, each.index, each.span))
        return apart

    def _frames(self, batch: AnyBatch, mask: Mask, bundle: Bundle) -> Iterator[pl.DataFrame]:
        """The records of a batch for which the mask is true, as they are kept. It becomes false for
        those that cannot be joined."""
        if not mask.any():
            return
        if isinstance(batch, ColumnBatch):
            try:
                with self._boundary.inside(bundle.count):
                    yield self._pairing.taken(batch.where(mask) if not mask.all() else batch)
                    return
            except Inexact:
                pass
        frame = self._encoded(batch, mask)
        if frame.height:
            yield frame

    def _encoded(self, batch: AnyBatch, mask: Mask) -> pl.DataFrame:
        rows = []
        streams = self._pairing.streams
        for index, record in enumerate(self._records(batch.rows(), ChannelName(""))):
            if not mask[index]:
                continue
            side = streams.index(record.stream)
            try:
                row = self._join.row_of(side, record)
            except RecordError:  # the row form reports it
                mask[index] = False
            else:
                rows.append((side, record.key, row.at, row.first, row.last, row.data))
        return self._pairing.encoded(rows)

    def _meet_but_heavy(
        self,
        new: Sequence[pl.DataFrame],
        batches: Sequence[AnyBatch],
        taken: list[Mask],
        bundle: Bundle,
        late: bool,
        begun: bool = False,
    ) -> list[Mask] | None:
        """The same; returns which of ``taken`` have met. None where there are too many pairs for
        one step: the bundle has become shorter. If it cannot, the keys with the most pairs go on in
        rows. ``begun``: other records of the bundle have made results."""
        while True:
            try:
                self._meet(new, bundle, late)
                return taken
            except TooManyPairs as heavy:
                if not begun and bundle.shorten(heavy.share):
                    return None
                self._let_go(heavy.keys, bundle)
                taken = without(heavy.keys, taken, batches)
                of_keys = [encoded_keys(heavy.keys)]
                new = [each.filter(pl.Series(~is_among(each[KEY], of_keys))) for each in new]

    def _meet(self, new: Sequence[pl.DataFrame], bundle: Bundle, late: bool) -> None:
        """Emit the pairs of new records, and keep these."""
        new = [frame for frame in new if frame.height]
        if not new:
            return
        kept = [*(segment.groups for segment in self._kept.segments()), *self._recalled]
        self._produce_changes(new, kept, bundle, late)
        for frame in new:
            stays = frame.drop(NUMBER)
            if late:
                stays = stays.filter(still_open(pl.col(END), bundle.watermark))
            self._kept.add(stays)

    def _produce_changes(
        self, new: Sequence[pl.DataFrame], kept: Sequence[pl.DataFrame], bundle: Bundle, late: bool
    ) -> None:
        """Emit the changes that new records make to the result."""
        pairs = self._pairing.pairs(new, kept, bundle.watermark if late else None)
        if pairs is not None:
            self._produce(pairs, bundle)

    def _produce(self, pairs: pl.DataFrame, bundle: Bundle) -> None:
        if VALUE not in pairs.schema:
            rows, keys = self._pairing.rows(pairs), self._pairing.keys_of(pairs)
            for stream in self._outputs:
                bundle.outputs.produce_columns(
                    ColumnBatch(stream, np.array([], np.int64), at_of(pairs), keys, rows)
                )
            return
        values = (pairs[name].to_list() for name in (KEY, VALUE, other(VALUE)))
        for key, left, right, at in zip(*values, at_of(pairs).tolist(), strict=True):
            self._context.point(key_from_bytes(key), at)
            try:
                self._join.produce_pair(self._context, left, right, at)
            except RecordError as ex:  # the two together nest too deeply
                self._refuse(bundle, 1, right, at, ex)

    def _let_go(self, keys: set[Key], bundle: Bundle) -> None:
        """Move some keys from columns to rows."""
        if keys:
            self._hand_over(self._form.leaving.taken_out([encoded_keys(keys)]), bundle)
            self._form.some_in_rows = True

    # --- to rows ----------------------------------------------------------------------------------

    def _hand_over(self, segments: Sequence[Left], bundle: Bundle) -> None:
        """Keep the records of these segments in rows."""
        self._keep_in_rows(segments, bundle)

    def _keep_in_rows(self, segments: Sequence[Left], bundle: Bundle) -> None:
        if not segments:
            return
        self._form.some_in_rows = True
        by_key = self._left_by_key(segments)
        self._context.begin(bundle)
        self._look_for_partners(by_key)
        self._state.read_ahead(list(by_key))
        try:
            for key, sides in by_key.items():
                self._go_on(key, sides, bundle)
            changes = self._state.encoded()
        except RecordError:
            self._state.forget()
            self._hand_over_carefully(by_key, bundle)
        else:
            self._state.write(changes)

    def _look_for_partners(self, by_key: Mapping[Key, SidesOfKey]) -> None:
        """Note of records that are to be kept in rows whether they have partners, where that makes
        a difference."""

    def _left_by_key(self, segments: Sequence[Left]) -> dict[Key, SidesOfKey]:
        by_key: dict[Key, SidesOfKey] = {}
        for segment in segments:
            whole = encoded(segment.groups).select(KEY, INPUT, AT, START, LAST, END, VALUE)
            for key, side, at, first, last, end, value in whole.iter_rows():
                sides = by_key.setdefault(key_from_bytes(key), ([], []))
                sides[side].append(NearRow(at, first, last, end - 1, value))
        return by_key

    def _hand_over_carefully(self, by_key: Mapping[Key, SidesOfKey], bundle: Bundle) -> None:
        """Do the same key by key: some key has more than limits.state, which columns do not have,
        and only it is refused."""
        for key, sides in by_key.items():
            try:
                self._go_on(key, sides, bundle)
                changes = self._state.encoded()
            except RecordError as ex:
                self._state.forget()
                for side, rows in enumerate(sides):
                    for row in rows:
                        self._refuse(bundle, side, row.data, row.at, ex)
            else:
                self._state.write(changes)

    def _go_on(self, key: Key, sides: SidesOfKey, bundle: Bundle) -> None:
        self._context.point(key, bundle.watermark)
        for side, rows in enumerate(sides):
            if rows:
                self._join.keep(self._context, side, rows)

    def _refuse(self, bundle: Bundle, side: int, data: bytes, at: int, ex: RecordError) -> None:
        """Send a record of the current key that cannot be joined to the dead letters."""
        letter = DeadLetter(
            self._pipeline,
            self._name,
            self._pairing.streams[side],
            f"join: {ex}",
            self._context.key,
            decode_value(data),
            at,
        )
        bundle.dead_letter(letter, max(at, bundle.floor))

    def _has_rows(self) -> bool:
        return next(iter(self._shard.store.scan(STATE)), None) is not None


class ColumnJoinOfBatches(ColumnJoinOperator, BatchOperator):
    """The same where the row form takes the records of a key together."""


def _numbers(first: int, count: int) -> pl.Series:
    return pl.Series(NUMBER, np.arange(first, first + count))


def without(keys: set[Key], taken: Sequence[Mask], batches: Iterable[AnyBatch]) -> list[Mask]:
    """The records that are taken, but for those of some keys."""
    if not keys:
        return [*taken]
    of_keys = [encoded_keys(keys)]
    pairs = zip(taken, batches, strict=True)
    return [mask & ~is_among(keys_of(batch), of_keys) for mask, batch in pairs]
