"""The parts of a source shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import wait_for
from millwheel.connect.sources.base import Chunk as Read
from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.store_layout import ENDED
from millwheel.core.grouping.epochs import Rule
from millwheel.core.model.limits import DEFAULTS, Limits
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.times import MAX_TIME, MIN_TIME, SECOND
from millwheel.core.model.watermark import Fellows, ReadFirst
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.core.pipeline.tables import declared_name
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import Watched
from millwheel.engine.workers.delivery.beside import BesideColumns
from millwheel.engine.workers.delivery.combining import Combining
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.engine.workers.sources.completion import CompletionTimes
from millwheel.engine.workers.sources.inferred_types import GuessedTypes, WholeRecords
from millwheel.engine.workers.sources.partition import Part

_NOTED_EACH_US = 30 * SECOND  # a wait that was not noted for two minutes is over


class TakesReads(Watched, Protocol):
    """A consumer that runs in the shards of a source."""

    def take(self, batches: Sequence[AnyBatch], channel: ChannelName, bundle: Bundle) -> None:
        """Take the records read from one partition, as a part of a bundle."""


@dataclass(frozen=True, slots=True)
class SourceParts:
    """The parts of a source shard.

    ``partitions`` lists the partitions that exist now, and ``mine`` returns whether a name falls
    into this shard's range. ``needs`` are the fields that the consumers read, if all of them take
    columns; ``guessed`` are their types where the stream declares none; ``whole``: consumers pass
    on all fields. ``first_owner`` is True when no owner has read for this shard before. Positions
    are committed every ``settle_us``. ``to_the_ends``: the run ends once it has read up to the
    versions that the partitions had when it began; silence does not count then. ``rules``: how
    consumers divide keys by tables, where any do; ``completion`` makes the measurements of a
    partition that they go by, if they go by any. ``combining``: how groups are made of records, if
    all consumers take groups. ``beside``: how columns are made of records that were read one by
    one. ``labelled``: a consumer takes the labels of records. ``chain`` is the consumer, if it is
    chained behind the source. ``fellows``: the streams that meet this one further down; ``first``:
    the tables that are read before it."""

    pipeline: str
    node: NodeName
    stream: StreamSpec
    source: Source
    partitions: Callable[[], Sequence[Partition]]
    mine: Callable[[str], bool]
    fanout: Fanout
    timestamps: Timestamps
    max_records: int = 5_000
    needs: frozenset[str] | None = None
    guessed: GuessedTypes | None = None
    whole: WholeRecords | None = None
    limits: Limits = DEFAULTS
    first_owner: bool = True
    settle_us: int = 0
    to_the_ends: bool = False
    rules: Mapping[str, Rule] = field(default_factory=dict)
    completion: Callable[[], CompletionTimes] | None = None
    combining: Combining | None = None
    beside: BesideColumns | None = None
    labelled: bool = False
    chain: TakesReads | None = None
    fellows: Fellows = field(default_factory=Fellows)
    first: ReadFirst = field(default_factory=ReadFirst)

    def has_columns(self, part: Part, reader: Reader) -> bool:
        """Whether to try columns. Undeclared fields only with many records at once: their types are
        inferred from rows, and for few records rows are as fast."""
        if part.position < part.rows_until or part.judged:
            return False
        if self.guessed is None:
            return self.needs is not None and (
                self.whole is None or self._takes_whole(part, reader)
            )
        if self.guessed.fields is None or not part.is_full:
            return False
        if part.columns is not self.guessed.fields:
            if not reader.take_columns(self.guessed.fields):
                self.guessed.give_up()
                return False
            part.columns = self.guessed.fields
        return True

    def _takes_whole(self, part: Part, reader: Reader) -> bool:
        whole = self.whole
        assert whole is not None
        if whole.given_up():
            return False
        if part.columns is not whole.fields:
            if not reader.take_whole(whole.fields):
                whole.missed()
                return False
            part.columns = whole.fields
        return True

    @property
    def clock_runs(self) -> bool:
        """Whether the time of arrival passes in silence. Not where it ends with the input, nor
        where looks are requested from outside."""
        source = self.source
        return not source.bounded and not self.to_the_ends and source.poll_us < MAX_TIME

    @property
    def infers(self) -> bool:
        """Whether the types of columns of whole records are to be inferred from the next read of
        rows."""
        return self.whole is not None and self.whole.begins()

    def has_types(self, part: Part, reader: Reader, read: Read) -> bool:
        """Whether this read has the types of undeclared fields, so that it can be read again in
        columns: once records come in rows, consumers keep windows in rows until all that are open
        have closed."""
        if self.whole is not None and read.begins is None and self.whole.look(read.values):
            return self.has_columns(part, reader)
        if self.guessed is None or read.begins is not None:
            return False
        part.is_full = len(read) >= self.max_records
        if part.is_full:
            self.guessed.look(read.values)
        return self.has_columns(part, reader)


class SourceEnd:
    """Rest and end of one source shard. ``ended`` is part of its state: no later owner reads on.
    ``catching_up``: records that an earlier owner may have read are to be read again first."""

    def __init__(self, store: StateStore) -> None:
        self.ended = store.get(ENDED) is not None
        self.finishing = False
        self.catching_up = False
        self.reads_nothing = self.ended
        """While it rests, and always after the order to finish."""

    def rest(self, active: bool) -> None:
        """Read nothing while ``active``."""
        self.reads_nothing = active or self.finishing or self.ended

    def finish(self) -> None:
        """Never read again."""
        self.finishing = self.reads_nothing = True

    def due(self, applied: bool) -> bool:
        """True when the end may be committed: all that was read is ``applied``."""
        return self.finishing and not self.ended and applied

    def commit(self, bundle: Bundle) -> None:
        """Make the end part of this bundle's commit. The hold of the shard before the bundle stays
        until that is durable."""
        bundle.overlay.put(ENDED, b"")
        self.ended = True


class TablesFirst:
    """Nothing of a source is read while any of the tables is ``left`` that its records are enriched
    with: they would wait in state. Its wait is shown to people."""

    def __init__(self, first: ReadFirst, stream: str) -> None:
        self._first = first
        self._wait = wait_for(f"reading of stream {declared_name(stream)}")
        self._noted_us = MIN_TIME

    def in_words(self) -> str:
        """The reason of the hold on the watermark of the source."""
        names = [declared_name(name.removeprefix("source.")) for name in self._first.left]
        return f"waits for table {' and '.join(names)}, which is read first"

    def notes_at(self) -> int:
        """When the wait is to be noted (wall clock, µs; MAX_TIME: there is none)."""
        if self._first.left:
            return self._noted_us + _NOTED_EACH_US
        return MIN_TIME if self._noted_us > MIN_TIME else MAX_TIME

    def note(self, now_us: int) -> None:
        """Note that the source still waits, or that it has."""
        if now_us < self.notes_at():
            return
        if self._first.left:
            self._noted_us = now_us
            self._wait.noted(self.in_words())
        else:
            self._noted_us = MIN_TIME
            self._wait.over()
