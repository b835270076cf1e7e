"""The way from a stream to its consumers: the records of each under its own keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.changes import narrowed
from millwheel.core.columns.key_columns import KeyColumns
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.formats.codec import apart, are_objects
from millwheel.core.grouping.epochs import Rule
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.names import NodeName, groups_of, is_rest, left_out, whole_of
from millwheel.core.model.records import Batch, Values, unlabelled, without
from millwheel.core.pipeline.graph import Graph, Node, runs_user_code
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.engine.workers.delivery.combining import Combining, whole
from millwheel.engine.workers.delivery.consumer_keys import (
    Consumer,
    Dividing,
    Extractor,
    Keyless,
    copy_key_column,
    key_column_of,
    keyed,
    with_instances_of,
)

_FEW_ROWS = 32  # up to here a loop is faster than arrays


class Fanout:
    """The consumers of every stream, each with its records under its own keys."""

    def __init__(
        self,
        graph: Graph,
        load_extractor: Callable[[KeySpec], Extractor],
        columns: Mapping[str, Sequence[str]] | None = None,
        most_key: int = DEFAULTS.key,
        combined: Collection[str] = (),
        labelled: Collection[str] = (),
        language: Language = BUILT_IN,
    ) -> None:
        """``combined``: the nodes that may get groups, under their keys, in place of records;
        ``labelled``: those that take labels."""
        self.combinings: Mapping[str, Combining] = {}
        self._most_key = most_key
        self._consumers: dict[str, list[Consumer]] = {}
        self._changing = frozenset(
            name for name, node in graph.nodes.items() if runs_user_code(node.computation)
        )
        for stream, names in graph.consumers.items():
            for name in names:
                spec = next(each.key for each in graph.nodes[name].inputs if each.stream == stream)
                fields = spec.names if spec.plain else ()
                extract = None if spec.kind is KeyKind.RECORD else load_extractor(spec)
                takes_late = _takes_late(graph.nodes[name])
                consumer = Consumer(
                    NodeName(name), fields, extract, takes_late, (columns or {}).get(name)
                )
                consumer = replace(
                    consumer, labelled=name in labelled, whole=spec.kind is KeyKind.ALL
                )
                if spec.kind is KeyKind.EXPRESSIONS:
                    consumer = replace(consumer, computed=KeyColumns(spec, language.compile))
                if spec.instances > 1:
                    consumer = replace(consumer, divided=spec)
                consumer = replace(consumer, copies=spec.copies)
                if spec.partitions:
                    consumer = replace(
                        consumer, fields=(), of=spec.names[0], partitions=spec.partitions
                    )
                self._consumers.setdefault(stream, []).append(consumer)
        self._combined = frozenset(combined)
        for name in combined:
            self._consumers[groups_of(name)] = [Consumer(NodeName(name), (), None)]

    def _of(self, stream: str) -> Sequence[Consumer]:
        """The consumers of productions of this name, which may be those for some of them."""
        consumers = self._consumers.get(stream)
        if consumers is None:
            gone = left_out(stream) | (self._combined if is_rest(stream) else frozenset())
            whole = self._consumers.get(whole_of(stream), [])
            consumers = [each for each in whole if each.node not in gone]
            self._consumers[stream] = consumers
        return consumers

    def combining(self, stream: str) -> Combining | None:
        """The grouping of productions of this name; None where there is none."""
        combining = self.combinings.get(whole_of(stream))
        gone = left_out(stream)
        if combining is None or not gone:
            return combining
        groupings = {name: each for name, each in combining.groupings.items() if name not in gone}
        return replace(combining, groupings=groupings, rest=len(self._of(stream)) > len(groupings))

    def consumed(self, stream: str) -> bool:
        """True when this stream has a consumer."""
        return bool(self._of(stream))

    def looks(self, stream: str) -> bool:
        """True when some consumer has keys of its own, which are taken out of the values."""
        return any(consumer.extract is not None or consumer.of for consumer in self._of(stream))

    def drops_late(self, stream: str) -> bool:
        """True when some consumer does not get the late records of this stream."""
        return any(not consumer.takes_late for consumer in self._of(stream))

    def rules(self, stream: str) -> dict[str, Rule]:
        """The rules by which consumers of a stream divide their keys by tables, where any do."""
        divided = ((consumer.node, consumer.divided) for consumer in self._of(stream))
        return {
            node: Rule(key.divided.value, key.instances)
            for node, key in divided
            if key is not None and key.divided.by_tables
        }

    def split_columns(
        self, batch: ColumnBatch, late: npt.NDArray[np.bool_] | None = None, epochs: Dividing = None
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """:meth:`split` for records in columns; ``late`` marks those that are late (None: none is).
        A consumer whose key does not consist of columns gets them as rows."""
        consumers, batch = self._of(batch.stream), whole(batch)
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        in_time = batch if late is None else batch.where(~late)
        rows: dict[int, Batch] = {}
        for consumer in consumers:
            gone = None if consumer.takes_late else late
            own_batch = batch if gone is None or consumer.counts else in_time
            if not len(own_batch):
                continue
            if consumer.copies:
                placed = replace(own_batch, keys=copy_key_column(own_batch.keys, consumer.copies))
                out.append((consumer.node, placed))
            elif consumer.extract is None and consumer.divided is None:
                out.append((consumer.node, own_batch))
            elif (keys := key_column_of(own_batch, consumer, self._most_key, epochs)) is not None:
                frame = (
                    own_batch.frame
                    if consumer.columns is None
                    else narrowed(own_batch.frame, consumer.columns)
                )
                keyed_batch = replace(own_batch, keys=keys, frame=frame)
                out.append(
                    (
                        consumer.node,
                        keyed_batch
                        if gone is None or not consumer.counts
                        else keyed_batch.where(~gone),
                    )
                )
            else:
                if id(own_batch) not in rows:
                    rows[id(own_batch)] = own_batch.rows()
                part = rows[id(own_batch)]
                still = (
                    np.flatnonzero(gone).tolist() if gone is not None and consumer.counts else ()
                )
                keyed_rows, missing = self._split_for(consumer, part, part.values, still, epochs)
                if own_batch is not batch and late is not None:
                    missing = _among_all(missing, late)
                refused += missing
                out.append((consumer.node, keyed_rows))
        return self._own([(node, each) for node, each in out if len(each)]), refused

    def split(
        self,
        batch: Batch,
        decoded: Sequence[Any],
        late: Collection[int] = (),
        epochs: Dividing = None,
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """(consumer, batch under its keys) for every consumer, and the records that had no key for
        one. The indexes in ``late`` go only to consumers that take late records. ``epochs``: how
        keys are divided; without it, hot keys are not."""
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        labelled = whole(batch)
        for consumer in self._of(batch.stream):
            records = labelled if consumer.labelled else unlabelled(labelled)
            keyed_batch, missing = self._split_for(consumer, records, decoded, late, epochs)
            refused += missing
            if len(keyed_batch):
                out.append((consumer.node, keyed_batch))
        return self._own(out), refused

    def _own(self, parts: list[tuple[NodeName, AnyBatch]]) -> list[tuple[NodeName, AnyBatch]]:
        """Objects that several consumers would share are copied for those whose code may change
        them."""
        if len(parts) < 2 or not self._changing:
            return parts
        shared = [
            node
            for node, batch in parts
            if isinstance(batch, Batch) and are_objects(batch.held_values)
        ]
        changing = [node for node in shared if node in self._changing]
        if len(shared) < 2 or not changing:
            return parts
        # Where all of them may change the objects, the first has them to itself.
        copied = changing if len(changing) < len(shared) else changing[1:]
        return [
            (node, apart(batch) if node in copied and isinstance(batch, Batch) else batch)
            for node, batch in parts
        ]

    def _split_for(
        self,
        consumer: Consumer,
        batch: Batch,
        decoded: Sequence[Any],
        late: Collection[int],
        epochs: Dividing,
    ) -> tuple[Batch, list[Keyless]]:
        """One consumer's records under its keys, and the records without a key."""
        if (numbered := self._under_numbers(consumer, batch, decoded, late)) is not None:
            return numbered, []
        # Late records are counted, too. Where a source states watermarks, the size of a read
        # decides which records are late; it must not decide which instances the records behind them
        # go to.
        indexes = None if consumer.counts else _indexes(batch, consumer, late)
        part = batch if indexes is None else batch.pick(indexes)
        values = decoded if indexes is None else [decoded[i] for i in indexes]
        keyed_batch, missing = keyed(consumer, part, values, self._most_key)
        gone = {bad.index for bad in missing}
        if missing:
            keyed_batch = keyed_batch.pick([i for i in range(len(keyed_batch)) if i not in gone])
            missing = (
                missing
                if indexes is None
                else [replace(bad, index=indexes[bad.index]) for bad in missing]
            )
        if consumer.divided is not None:
            keyed_batch = keyed_batch.under(
                with_instances_of(consumer, consumer.divided, keyed_batch, epochs)
            )
        if late and not consumer.takes_late and consumer.counts:
            dropped = set(late)
            usable = [i for i in range(len(batch)) if i not in gone]
            keyed_batch = keyed_batch.pick(
                [row for row, i in enumerate(usable) if i not in dropped]
            )
            missing = [bad for bad in missing if bad.index not in dropped]
        return keyed_batch, missing

    @staticmethod
    def _under_numbers(
        consumer: Consumer, batch: Batch, decoded: Sequence[Any], late: Collection[int]
    ) -> Batch | None:
        """The same for keys that are all whole numbers and come undivided: then no record can have
        none."""
        if len(batch) <= _FEW_ROWS or consumer.divided is not None or len(consumer.fields) != 1:
            return None
        numbers = decoded.numbers(consumer.fields[0]) if isinstance(decoded, Values) else None
        if numbers is None:
            return None
        keyed_batch = batch.under(numbers)
        return (
            without(keyed_batch, sorted(late)) if late and not consumer.takes_late else keyed_batch
        )


def _among_all(missing: Sequence[Keyless], late: npt.NDArray[np.bool_]) -> list[Keyless]:
    """Records without a key by their indexes among late records and those in time, given by those
    among the records in time."""
    in_time = np.flatnonzero(~late).tolist()
    return [replace(bad, index=in_time[bad.index]) for bad in missing]


def _indexes(batch: Batch, consumer: Consumer, late: Collection[int]) -> list[int] | None:
    """The indexes of the records that a consumer gets; None for all of them."""
    if not late or consumer.takes_late:
        return None
    return [index for index in range(len(batch)) if index not in late]


def _takes_late(node: Node) -> bool:
    if node.sink is not None:
        return node.sink.takes_late
    computation = node.computation
    return computation is not None and computation.takes_late
