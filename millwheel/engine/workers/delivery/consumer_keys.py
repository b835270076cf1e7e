"""The keys under which a consumer gets the records of a stream: from rows, and from columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.key_columns import KeyColumns, everything
from millwheel.core.grouping.epochs import KeyEpochs, counted_of
from millwheel.core.lazy_polars import pl
from millwheel.core.model.failures import encodable, in_words
from millwheel.core.model.keys import Key, fitting_key
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.dictionaries import partitions_of_numbers, partitions_of_text
from millwheel.core.pipeline.keys import EVERYTHING, INSTANCE, Divided, KeySpec
from millwheel.core.pipeline.skew import divided_keys, instances_of, with_instances
from millwheel.core.pipeline.tables import copy_key
from millwheel.engine.workers.boundaries import ColumnBoundary, passes
from millwheel.engine.workers.delivery.instances import Instances
from millwheel.engine.workers.delivery.timestamps import numbers_column, plain_column
from millwheel.errors import InvariantError, RecordError

Extractor = Callable[[Any], Key]
_TEXT_KEYS = {str, bytes}
_FEW_ROWS = 32  # up to here a loop is faster than arrays
_BYTES_PER_CHARACTER = 4  # Fixed: at most, in UTF-8
_KEY_HEAD = 5
"""The most bytes that stand before those of a text."""
_PART_HEAD = 2 * _KEY_HEAD
"""The same for a part of a tuple, with its share of the tuple's own head."""
_INT_BYTES = 8  # Fixed: of a number
_BOUNDARY = ColumnBoundary("keys of expressions")


@dataclass(frozen=True, slots=True)
class Keyless:
    """A record that a consumer's extractor could give no key; ``index`` is its index in the
    batch."""

    index: int
    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a stream: ``fields`` are those of its key when it consists of plain fields,
    ``extract`` is None when it takes the key the producer gave. ``takes_late`` when it has a policy
    of its own for late records. ``columns`` are all the fields that it looks at, None for one that
    may look at any. ``divided`` is the key of one whose keys are divided over instances.
    ``partitions``: of a dictionary, which has the partition of a value of the field ``of`` as its
    key. ``labelled`` when it takes the labels of its records. ``computed`` makes keys of
    expressions in columns; ``whole`` when all records have the one key of everything. ``copies``:
    the number of copies of an enrichment's table, where the key is that of one."""

    node: NodeName
    fields: tuple[str, ...]
    extract: Extractor | None
    takes_late: bool = False
    columns: Sequence[str] | None = None
    divided: KeySpec | None = None
    of: str = ""
    partitions: int = 0
    labelled: bool = False
    computed: KeyColumns | None = None
    whole: bool = False
    copies: int = 0

    @property
    def counts(self) -> bool:
        """Whether the instance of a record depends on how many records the instances have got
        before it."""
        return self.divided is not None and self.divided.divided.by_slots


Dividing = KeyEpochs | Instances | None
"""The division of the records of a batch: those that a source has read by the epochs of their
partition, others by the instances that are chosen for them. None where no consumer divides its keys
by tables."""


def with_instances_of(
    consumer: Consumer, key: KeySpec, batch: Batch, epochs: Dividing
) -> list[Key]:
    """The keys of records with their instances; and keys are counted for the next table."""
    hot = None
    if key.divided.by_tables and epochs is not None and not isinstance(epochs, KeyEpochs):
        return with_instances(
            key, batch.keys, epochs.of(consumer.node, key.instances, batch.keys, batch.seqs)
        )
    if consumer.counts:
        instances = _epochs_of(consumer, epochs).choose(consumer.node, batch.keys, batch.seqs)
        return with_instances(key, batch.keys, instances)
    if key.divided is Divided.HOT:
        hot = [False] * len(batch)
        if isinstance(epochs, KeyEpochs):
            epochs.count(consumer.node, batch.keys[counted_of(len(batch))])
            hot = epochs.are_hot(consumer.node, batch.keys, batch.seqs)
    return divided_keys(key, batch.keys, batch.seqs, batch.ids, batch.timestamps, hot)


def _epochs_of(consumer: Consumer, epochs: Dividing) -> KeyEpochs:
    if not isinstance(epochs, KeyEpochs):
        raise InvariantError(
            f"{consumer.node} divides keys by tables, and nothing chooses for these records"
        )
    return epochs


def _instances(
    batch: ColumnBatch,
    consumer: Consumer,
    key: KeySpec,
    parts: Sequence[pl.Series],
    epochs: Dividing,
) -> npt.NDArray[np.int64]:
    """The instance of each record in columns; ``parts`` are those of its key."""
    if key.divided.by_tables and epochs is not None and not isinstance(epochs, KeyEpochs):
        keys = key_list(key_column(list(parts)))
        return np.array(epochs.of(consumer.node, key.instances, keys, batch.seqs), np.int64)
    if consumer.counts:
        keys = key_list(key_column(list(parts)))
        return np.array(
            _epochs_of(consumer, epochs).choose(consumer.node, keys, batch.seqs), np.int64
        )
    instances = instances_of(batch.seqs if len(batch.seqs) else batch.timestamps, key.instances)
    if key.divided is Divided.ALL:
        return instances
    divided = np.zeros(len(batch), np.bool_)
    if isinstance(epochs, KeyEpochs):
        epochs.count(
            consumer.node, key_list(key_column([part[counted_of(len(batch))] for part in parts]))
        )
        for keys_with_routes, rows in epochs.stretches(consumer.node, batch.seqs):
            divided[rows] = _among([part[rows] for part in parts], keys_with_routes)
    instances[~divided] = 0
    return instances


def _among(parts: Sequence[pl.Series], keys: Iterable[Key]) -> npt.NDArray[np.bool_]:
    """Which of the keys in columns are among some. Those are few, so each is looked for in whole
    columns."""
    mask = np.zeros(len(parts[0]), np.bool_)
    for key in keys:
        values = (key,) if len(parts) == 1 else key
        if all(_fits(part, value) for part, value in zip(parts, values, strict=True)):
            same = [(part == value).to_numpy() for part, value in zip(parts, values, strict=True)]
            mask |= np.logical_and.reduce(same)
    return mask


def _fits(part: pl.Series, value: Any) -> bool:
    """Whether a column of keys can have this value: keys that were counted in rows may have another
    type."""
    return type(value) is str if part.dtype == pl.String else type(value) is int and value < 2**63


def key_column_of(
    batch: ColumnBatch, consumer: Consumer, most: int, epochs: Dividing
) -> pl.Series | None:
    """Fields, or values computed from them, as a column of keys; None when their values cannot all
    be keys, or not all of up to ``most`` bytes."""
    if consumer.partitions:
        return _partition_column(batch, consumer, most)
    parts = _parts(batch, consumer)
    if parts is None:
        return None
    if any(part.dtype not in (pl.Int64, pl.String) or part.null_count() for part in parts):
        return None
    if len(batch) and sum(_most_bytes(part) + _PART_HEAD for part in parts) > most:
        return None  # perhaps: rows are measured exactly
    if consumer.divided is not None:
        if batch.ids is not None:
            return None  # a copy goes to the instance of its id, which only rows have
        parts.append(
            pl.Series(INSTANCE, _instances(batch, consumer, consumer.divided, parts, epochs))
        )
    return key_column(parts)


def _parts(batch: ColumnBatch, consumer: Consumer) -> list[pl.Series] | None:
    """The parts of keys as columns, None where there are none."""
    if consumer.whole:
        return [everything(len(batch))]
    if consumer.computed is not None:
        try:
            with _BOUNDARY.inside():
                return consumer.computed.parts(batch.frame)
        except Inexact:
            return None
    fields = consumer.fields
    if not fields or len(set(fields)) < len(fields) or not set(fields) <= set(batch.frame.columns):
        return None
    return [batch.frame[name] for name in fields]


def _partition_column(batch: ColumnBatch, consumer: Consumer, most: int) -> pl.Series | None:
    """The partitions of a column; None for values that are looked at one by one."""
    if consumer.of not in batch.frame.columns:
        return None
    values = batch.frame[consumer.of]
    if values.dtype not in (pl.Int64, pl.String) or values.null_count():
        return None
    if values.dtype == pl.Int64:
        return pl.Series(consumer.of, partitions_of_numbers(values.to_numpy(), consumer.partitions))
    if len(batch) and _most_bytes(values) + _KEY_HEAD > most:
        return None
    return pl.Series(
        consumer.of, partitions_of_text(values.to_list(), consumer.partitions), pl.Int64
    )


def copy_key_column(keys: pl.Series, copies: int) -> pl.Series:
    """The keys of the copies that get records with these keys."""
    copy_of: dict[Key, int] = {}
    for key in key_list(keys):
        if key not in copy_of:
            copy_of[key] = copy_key(key, copies)
    return pl.Series(keys.name, [copy_of[key] for key in key_list(keys)], pl.Int64)


def _most_bytes(part: pl.Series) -> int:
    """The bytes of the longest text of a column, or those of a number."""
    return int(part.str.len_bytes().to_numpy().max()) if part.dtype == pl.String else _INT_BYTES


def keyed(
    consumer: Consumer, batch: Batch, decoded: Sequence[Any], most: int
) -> tuple[Batch, list[Keyless]]:
    """The batch under a consumer's keys, and its records that have none."""
    if consumer.copies:
        return batch.under([copy_key(key, consumer.copies) for key in batch.keys]), []
    if consumer.extract is None:
        return batch, []
    if consumer.whole:
        return batch.under([EVERYTHING] * len(batch)), []
    keys = plain_column(decoded, consumer.fields[0]) if len(consumer.fields) == 1 else None
    if keys and len(keys) > _FEW_ROWS and type(keys[0]) is int:
        numbers = numbers_column(decoded, consumer.fields[0])
        if numbers is not None:
            return batch.under(numbers), []
    if keys and _are_plain(keys, most):
        return batch.under(keys), []
    if len(consumer.fields) > 1 and (tuples := _plain_tuples(consumer.fields, decoded, most)):
        return batch.under(tuples), []
    keys, missing = _keys_one_by_one(consumer, decoded, most)
    return batch.under(keys), missing


def _plain_tuples(names: Sequence[str], decoded: Sequence[Any], most: int) -> list[Key] | None:
    """Keys of several fields that are all whole numbers, or all short ASCII texts; None where they
    are looked at one by one."""
    if len(decoded) <= _FEW_ROWS:
        return None
    room, columns = most - _KEY_HEAD, []
    for name in names:
        column = plain_column(decoded, name)
        kinds = set(map(type, column or ()))
        if not column or len(kinds) > 1:
            return None
        if kinds == {int} and min(column) >= -(2**63) and max(column) < 2**63:
            room -= _PART_HEAD + _INT_BYTES
        elif kinds == {str} and all(map(str.isascii, column)):
            room -= _PART_HEAD + max(map(len, column))
        else:
            return None
        columns.append(column)
    return list(zip(*columns, strict=True)) if room >= 0 else None


def _are_plain(keys: list[Key], most: int) -> bool:
    """True when all of them can be keys as they are. A mixture with integers is looked at one by
    one, and so are long ones."""
    kinds = set(map(type, keys))
    if kinds == {int}:
        return bool(min(keys) >= -(2**63) and max(keys) < 2**64)
    return (
        kinds <= _TEXT_KEYS
        and max(map(len, keys), default=0) * _BYTES_PER_CHARACTER <= most - _KEY_HEAD
    )


def _is_small(key: Any, most: int) -> bool:
    """True for a tuple that certainly is a key as it is, of small numbers and short ASCII texts."""
    if type(key) is not tuple:
        return False
    room = most - _KEY_HEAD
    for part in key:
        kind = type(part)
        if kind is int:
            if not -(2**63) <= part < 2**63:
                return False
            room -= _PART_HEAD + _INT_BYTES
        elif kind is str and part.isascii():
            room -= _PART_HEAD + len(part)
        else:
            return False
    return room >= 0


def _keys_one_by_one(
    consumer: Consumer, decoded: Sequence[Any], most: int
) -> tuple[list[Key], list[Keyless]]:
    extract = consumer.extract
    assert extract is not None
    keys: list[Key] = []
    refused: list[Keyless] = []
    for index, value in enumerate(decoded):
        try:
            key = extract(value)
            keys.append(key if _is_small(key, most) else fitting_key(key, most))
        except RecordError as ex:
            refused.append(Keyless(index, consumer.node, encodable(str(ex))))
            keys.append(None)
        # the extractor may be the user's: any exception concerns this record
        except BaseException as ex:
            if passes(ex):
                raise
            refused.append(
                Keyless(index, consumer.node, f"the key extractor failed: {in_words(ex)}")
            )
            keys.append(None)
    return keys, refused
