"""The contract of a source: partitions, and readers that resume at a position.

Third parties register a factory under the entry point group ``millwheel.sources``:
``name = "package.module:factory"``, where ``factory(options, folder) -> Source``.

A source is *replayable*: reading a partition again from a position gives the same records with the same
positions. That is what makes it exactly-once without logging what was read.

Derive from :class:`Source` and :class:`Reader`: a capability that a class does not define has the default of the base
class. An object with the necessary methods only is wrapped (``adapted.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millwheel.core.model.times import MAX_TIME
from millwheel.core.tracing.contexts import TraceContext

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl


ENDS = ".ends.json"
"""Below ``inputs/`` of a root: the suffix of the files with the ends of unbounded sources."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a source that one reader reads in order: a file, a share of a generator.

    ``name`` is stable across runs and unique within the source; it decides which shard reads it. ``version``, of an
    unbounded source, changes when there may be something new to read; with None, only reading tells. It last changed
    at ``changed_at`` (wall clock, µs).
    """

    name: str
    version: tuple[int, ...] | None = field(default=None, compare=False)
    changed_at: int = field(default=MAX_TIME, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """Input that is not a record: ``raw`` as read, its position, and the reason."""

    position: int
    raw: Any
    reason: str


@dataclass(slots=True)
class Chunk:
    """The result of one read.

    ``positions[i]`` numbers ``values[i]``; positions of records and rejects rise strictly within a partition, are
    greater than the position read from and at most ``next_position``, where the next read starts. ``finished`` is True
    once a bounded partition has nothing more, ever; ``caught_up`` when there is nothing more for now, so that the next
    read may wait for the source's ``poll_us``. ``watermark`` (µs) is the source's own claim that nothing earlier will
    follow; records that do are late. None: it follows the newest timestamp, ``max_delay`` behind.

    Sources whose input changes keep further facts in notes (see :meth:`Reader.resume`). ``note`` is what a later
    reader must know to continue at ``next_position``. ``begins`` is a decision about the input behind a position, as
    (position, note), which a second reading might not repeat. Nothing more is read before it is durable.

    ``traces`` are the trace contexts that came with records, by position, after :meth:`Reader.tell_traces`.
    """

    positions: list[int]
    values: list[Any]
    next_position: int
    rejects: list[Reject] = field(default_factory=list)
    finished: bool = False
    caught_up: bool = False
    watermark: int | None = None
    note: bytes = b""
    begins: tuple[int, bytes] | None = None
    traces: Mapping[int, TraceContext] | None = None

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(slots=True)
class FrameChunk:
    """The result of one read, as columns: ``frame`` has the declared fields only (Int64, Float64, String, Boolean; null
    where one is missing), row i of it being the record at ``positions[i]``. The rest is as in :class:`Chunk`."""

    positions: npt.NDArray[np.int64]
    frame: pl.DataFrame
    next_position: int
    rejects: list[Reject] = field(default_factory=list)
    finished: bool = False
    note: bytes = b""
    begins: tuple[int, bytes] | None = None
    traces: Mapping[int, TraceContext] | None = None

    def __len__(self) -> int:
        return len(self.positions)


class Reader(ABC):
    """Reads one partition. Only the thread of the worker's loop uses it: a blocking call here blocks all its shards.

    The calls come in this order: :meth:`resume` once; then :meth:`read` and :meth:`read_frame`, in any order,
    each from the ``next_position`` of the previous one; :meth:`close` at the end, also after an error. A reader
    may be closed at any time; another one then continues from its position.
    """

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """Take over from an earlier reader, which may have died. Called once, before anything is read.

        ``notes[0]`` is (the position to continue at, the last :attr:`Chunk.note` committed there, b"" for none). The
        others are the decisions (:attr:`Chunk.begins`) about input there or later, in order. For most sources the
        position is enough, and there is nothing to do."""
        return

    @abstractmethod
    def read(self, position: int, max_records: int) -> Chunk:
        """Return up to about ``max_records`` records after ``position`` (0: the start).

        The same position must give the same records with the same positions whenever it is read again. Consumers drop
        records that they have by position, so a record whose position has moved is lost or counted twice. Never wait
        for new input: return an empty, unfinished chunk when there is none now. Raises SetupError when the partition
        cannot be read, ExhaustedError when it cannot be read now, for example for lack of file descriptors; it is tried
        again later."""

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """Return about ``max_bytes`` of input after ``position`` as columns; None when this reader has none, and the
        runtime then calls :meth:`read`.

        The same lines must be records and rejects as with :meth:`read`, because the other form
        may read them again after a crash. Only values that no declared field needs are not inspected here. Raises as
        ``read``."""
        return None

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        """From now on give these fields with :meth:`read_frame`, though nobody has declared them: their types
        (``int``, ``float``, ``str``, ``bool``) are guessed from records. A read in which a value is of another type has
        rejects, or is None; ``7`` is no float. False (the default): this reader cannot."""
        return False

    def stop_at(self, end: tuple[int, ...]) -> None:
        """Give nothing behind ``end``, the version that :meth:`Source.ends` gave this partition. Called once, after
        :meth:`resume`, in a run that ends once it has caught up. A reader that does not know ends reads on."""
        return

    def reached(self, position: int) -> bool:
        """Asked in such a run when a read has found nothing, or nothing more for now: whether all is read that there
        was when the run began. By default nothing more for now is all."""
        return True

    def tell_traces(self) -> None:
        """The pipeline traces records: from now on set :attr:`Chunk.traces`, where records come with trace contexts.
        Called before each read. By default none do."""
        return

    def close(self) -> None:
        """Release files and connections. Called once; nothing is called after it."""
        return


class Source(ABC):
    """A description of input, cheap to construct: it is built by the driver and in every worker.

    A class must have :attr:`bounded`, :meth:`partitions` and :meth:`open`; the other capabilities have defaults.
    """

    bounded: bool
    """True when the partitions are fixed at the start and all of them end. A run ends once all its sources have."""
    poll_us: int = 50_000
    """How long to wait after a read that found nothing, µs. A short time costs a look at each partition."""
    list_us: int = 1_000_000
    """How often an unbounded source is asked for its partitions, µs."""

    def check(self) -> None:
        """Called once by the driver, before anything starts, for an unbounded source. Raises SetupError, with a
        sentence, when the input is not there and will not appear by itself."""
        return

    @abstractmethod
    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that exist now. Never wait for long. Raises ExhaustedError while another system has not
        said yet which there are: event time stands still until then.

        The driver asks a bounded source once and keeps the answer in the root. Each shard of an unbounded source asks
        every ``list_us``. A partition that is no longer listed is read to its end; then only its position is kept, and
        if the name comes back, reading continues there."""

    def ends(self) -> Sequence[Partition]:
        """Return the partitions of an unbounded source that exist now, each with a ``version`` that tells where it ends
        now, if its readers can stop there (:meth:`Reader.stop_at`). The driver asks once, before a run that ends once
        it has caught up, and keeps the answer in the root. Raises SetupError when there is no end to be reached."""
        return self.partitions()

    @abstractmethod
    def open(self, partition: Partition) -> Reader:
        """Return a reader of a partition. A worker opens at most one reader of it, but a worker that was declared
        dead may still be reading. Raises SetupError, with a sentence, when the partition cannot be read,
        ExhaustedError when it cannot be read now."""

    def committed(self, partition: Partition, position: int) -> None:
        """Called after a commit that holds this position of a partition is durable, and by a new owner with the
        position at which it begins, for systems that want to know how far we are. Called in the thread of the loop:
        never wait here."""
        return

    def warm_up(self) -> None:
        """Load everything that the first read would load. Called once in every worker, before there is input."""
        return


ResumingReader = FrameReader = Reader
"""Earlier names of what is part of each reader, for plug-ins that import them."""
