"""The contract of a source: partitions, and readers that resume at a position.

Third parties register a factory under the entry point group ``millwheel.sources``:
``name = "package.module:factory"``, where ``factory(options, folder) -> Source``.

A source is *replayable*: reading a partition again from a position gives the same records with the
same positions. This makes reading exactly-once without a log of the records.

Derive from :class:`Source` and :class:`Reader`: a capability that a class does not define has the
default of the base class. ``plug_ins.py`` wraps an object that only has the required methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millwheel.core.model.times import MAX_TIME
from millwheel.core.tracing import TraceContext

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl


ENDS = ".ends.json"
"""The suffix of the files with the ends of unbounded sources, below ``inputs/`` of a root."""
ROWS = ".rows"
"""Likewise, of the files with rows of tables that every worker holds whole."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of a source that one reader reads in order, such as a file or a share of a generator.

    ``name`` is stable across runs and unique within the source; it decides which shard reads the
    partition. For an unbounded source, ``version`` changes when there may be something new to read;
    with None, only a read can find out. It last changed at ``changed_at`` (wall clock, µs).
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

    ``positions[i]`` numbers ``values[i]``; positions of records and rejects rise strictly within a
    partition, are greater than the position read from and at most ``next_position``, where the next
    read starts. ``finished`` is True once a bounded partition has been read to its end.
    ``caught_up`` is True when there is nothing more for now, so that the next read may wait for the
    source's ``poll_us``. ``watermark`` (µs) is the source's own claim that no earlier record will
    follow; earlier records are late. None: the watermark is the newest timestamp minus
    ``max_delay``.

    Sources whose input changes keep further facts in notes (see :meth:`Reader.resume`). ``note``
    has the facts that a later reader needs to continue at ``next_position``. ``begins`` is a
    decision about the input after a position, as (position, note), that a second reading might not
    repeat. Nothing more is read until it is durable.

    ``traces`` are the trace contexts that came with records, by position, after
    :meth:`Reader.tell_traces`.
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

    @property
    def held_positions(self) -> list[int] | npt.NDArray[np.int64]:
        """The positions in their present form: an array of int64 becomes a list only when a list is
        needed."""
        return self.positions


class LinesChunk(Chunk):
    """A read of many lines, whose positions are an array."""

    __slots__ = ("_ends", "_listed")
    _listed: list[int]

    def __init__(
        self,
        ends: npt.NDArray[np.int64],
        values: list[Any],
        next_position: int,
        rejects: list[Reject],
        finished: bool,
        note: bytes,
        begins: tuple[int, bytes] | None,
    ) -> None:
        self._ends = ends
        super().__init__([], values, next_position, rejects, finished, note=note, begins=begins)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def positions(self) -> list[int]:
        """The positions as a list."""
        if len(self._listed) < len(self._ends):
            self._listed = self._ends.tolist()
        return self._listed

    @positions.setter
    def positions(self, positions: list[int]) -> None:
        self._listed = positions

    @property
    def held_positions(self) -> npt.NDArray[np.int64]:
        return self._ends


@dataclass(slots=True)
class FrameChunk:
    """The result of one read, as columns: ``frame`` has the declared fields only (Int64, Float64,
    String, Boolean; null where one is missing), row i of it being the record at ``positions[i]``.
    The rest is as in :class:`Chunk`."""

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
    """Reads one partition. Only the thread of the worker's loop uses it: a call that blocks here
    blocks all shards of the worker.

    The calls come in this order: :meth:`resume` once; then :meth:`read` and :meth:`read_frame`, in
    any order, each from the ``next_position`` of the previous one; :meth:`close` at the end, also
    after an error. A reader may be closed at any time; another one then continues from its
    position.
    """

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """Take over from an earlier reader, which may have died. Called once, before anything is
        read.

        ``notes[0]`` is (the position to continue at, the last :attr:`Chunk.note` committed there,
        b"" for none). The others are the decisions (:attr:`Chunk.begins`) about input there or
        later, in order. For most sources the position suffices, and there is nothing to do."""
        return

    @abstractmethod
    def read(self, position: int, max_records: int) -> Chunk:
        """Return up to about ``max_records`` records after ``position`` (0: the start).

        The same position must give the same records with the same positions whenever it is read
        again. Consumers recognize duplicates by position, so a record whose position changes is
        lost or counted twice. Never wait for new input: return an empty, unfinished chunk when
        there is none now. Raises SetupError when the partition cannot be read, ExhaustedError when
        it cannot be read at the moment, for example for lack of file descriptors; then it is
        retried later."""

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """Return about ``max_bytes`` of input after ``position`` as columns. None: this reader
        cannot; the runtime then calls :meth:`read`.

        It must return the same records and rejects as :meth:`read`, because after a crash the input
        may be read again in the other form. Only values that no declared field needs may go
        unchecked. Raises as ``read``."""
        return None

    def skip(self, position: int) -> Chunk | None:
        """Pass over one record after ``position`` without decoding it, because workers have died of
        that: it becomes a reject, as it is in the input; its reason precedes the words about the
        deaths. Its positions are those of ``read(position, 1)``. None (the default): this reader
        cannot."""
        return None

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        """Let :meth:`read_frame` return these fields from now on, although the stream does not
        declare them: their types (``int``, ``float``, ``str``, ``bool``) are inferred from records.
        If a value has another type, the read has rejects or returns None; ``7`` is not a float.
        False (the default): this reader cannot."""
        return False

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        """Let :meth:`read_frame` return all of these fields from now on, and None where a record
        has any other, because a consumer passes on whole records. They are the declared fields, and
        those whose types are inferred, as in :meth:`take_columns`. False (the default): this reader
        cannot, or all records have further fields."""
        return False

    def stop_at(self, end: tuple[int, ...]) -> None:
        """Return no records beyond ``end``, the version of this partition from :meth:`Source.ends`.
        Called once, after :meth:`resume`, in a run that ends once it has caught up. By default the
        reader continues beyond it."""
        return

    def reached(self, position: int) -> bool:
        """Whether everything that existed at the start of such a run has been read. Called when a
        read has returned nothing, or has caught up. By default True: catching up is enough."""
        return True

    def tell_traces(self) -> None:
        """Set :attr:`Chunk.traces` from now on for records that carry trace contexts, because the
        pipeline traces records. Called before each read. By default there are none."""
        return

    def close(self) -> None:
        """Release files and connections. Called once; nothing is called after it."""
        return


class Source(ABC):
    """A description of input, cheap to construct: it is built by the driver and in every worker.

    A class must have :attr:`bounded`, :meth:`partitions` and :meth:`open`; the other capabilities
    have defaults.
    """

    bounded: bool
    """True when the partitions are fixed at the start and all of them end. A run ends once all its
    sources have."""
    poll_us: int = 50_000
    """The time to wait after a read that found nothing, in µs. A short time costs more reads of
    each partition."""
    list_us: int = 1_000_000
    """The interval at which the partitions of an unbounded source are listed, in µs."""
    absent: str = "it has no partition yet"
    """Message about an unbounded source while nothing is listed."""

    def check(self) -> None:
        """Called once by the driver, before anything starts, for an unbounded source. Raises
        SetupError when the input does not exist and will not appear by itself."""
        return

    @abstractmethod
    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that exist now. Never block for long. Raises ExhaustedError while
        another system has not yet listed them; event time stands still until then.

        The driver asks a bounded source once and keeps the answer in the root. Each shard of an
        unbounded source asks every ``list_us``. A partition that is no longer listed is read to its
        end; then only its position is kept, and if the name comes back, reading continues there."""

    def ends(self) -> Sequence[Partition]:
        """Return the partitions of an unbounded source that exist now, each with its present end as
        ``version``, if its readers can stop there (:meth:`Reader.stop_at`). The driver asks once,
        before a run that ends once it has caught up, and keeps the answer in the root. Raises
        SetupError when there is no end that could be reached."""
        return self.partitions()

    @abstractmethod
    def open(self, partition: Partition) -> Reader:
        """Return a reader of a partition. A worker opens at most one reader of it, but a worker
        that was declared dead may still be reading. Raises SetupError, with a sentence, when the
        partition cannot be read, ExhaustedError when it cannot be read now."""

    def fits(self, name: str) -> bool:
        """Whether a partition of this name could be one of this source, whether or not it exists at
        present. Asked about names that come from elsewhere, with a savepoint."""
        return True

    def committed(self, partition: Partition, position: int) -> None:
        """Report a durable position of a partition to a system that tracks consumers. Called after
        the commit with that position is durable, and by a new owner with its first position. Called
        in the thread of the loop: never block here."""
        return

    def warm_up(self) -> None:
        """Load all code and data that the first read would load. Called once in every worker,
        before there is input."""
        return


ResumingReader = FrameReader = Reader
"""Deprecated names, kept for plug-ins that import them: their methods are part of every reader."""
