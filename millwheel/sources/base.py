"""The contract of a source: partitions, and readers that resume at a position.

Third parties register a factory under the entry point group ``millwheel.sources``:
``name = "package.module:factory"``, where ``factory(options, folder) -> Source``.

A source is *replayable*: reading a partition again from a position gives the same records with the same
positions. That is what makes it exactly-once without logging what was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from millwheel.core.model.times import MAX_TIME

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl


@dataclass(frozen=True, slots=True)
class Partition:
    """Something read in order by one reader: a file, a share of a generator.

    ``name`` is stable across runs and unique within the source; it decides which shard reads it. ``version``, of an
    unbounded source, differs once there may be something new to read; with None it must be read to know. It changed
    last at ``changed_at`` (wall clock, µs).
    """

    name: str
    version: tuple[int, ...] | None = field(default=None, compare=False)
    changed_at: int = field(default=MAX_TIME, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """Input that is no record: ``raw`` as read, where it stood, and why it cannot be used."""

    position: int
    raw: Any
    reason: str


@dataclass(slots=True)
class Chunk:
    """What one read returned.

    ``positions[i]`` numbers ``values[i]``; positions of records and rejects rise strictly within a partition,
    are greater than the position read from and at most ``next_position``, where the next read starts.
    ``finished`` is True once a bounded partition has nothing more, ever; ``caught_up`` when there is nothing more for
    now, so that the next read may wait for the source's ``poll_us``. ``watermark`` (µs) is the source's own word
    that nothing before it will follow: what does is late. None: it follows the newest timestamp, ``max_delay`` behind.

    What a position does not tell is in notes, for sources whose input changes (see :class:`ResumingReader`). ``note``
    is what a later reader must know to go on at ``next_position``. ``begins`` is a decision, which a second reading
    might not repeat, about what follows a position, as (position, note): nothing more is read before it is durable.
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

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(slots=True)
class FrameChunk:
    """What one read returned, as columns: ``frame`` has the declared fields only (Int64, Float64, String, Boolean; null
    where one is missing), row i of it being the record at ``positions[i]``. The rest is as in :class:`Chunk`."""

    positions: npt.NDArray[np.int64]
    frame: pl.DataFrame
    next_position: int
    rejects: list[Reject] = field(default_factory=list)
    finished: bool = False
    note: bytes = b""
    begins: tuple[int, bytes] | None = None

    def __len__(self) -> int:
        return len(self.positions)


class Reader(Protocol):
    """Reads one partition. Used by one thread."""

    def read(self, position: int, max_records: int) -> Chunk:
        """Up to about ``max_records`` after ``position`` (0: the start). Never blocks for new input: returns an
        empty, unfinished chunk when there is none now."""

    def close(self) -> None: ...


class ResumingReader(Reader, Protocol):
    """A reader that needs more than a position to go on where another one was."""

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """Called once, before anything is read. The first one is (the position to go on at, the last ``note``, b"" for
        none), the others are the decisions about what begins there or later, in order."""


class FrameReader(Reader, Protocol):
    """A reader that also reads into columns. The same lines are records, and the same are rejects, in both forms,
    except that values which no declared field needs are not looked at here. Mixing the forms is allowed."""

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """About ``max_bytes`` of input after ``position``; None when the stream declares no fields."""


class Source(Protocol):
    """A description of input, cheap to construct; it is built on the driver and in every worker.

    It may have attributes ``poll_us``: how long to wait after a read that found nothing, µs (default 50,000), and
    ``list_us``: how often an unbounded one is asked for its partitions (default a second). A method ``warm_up()`` is
    called once in every worker, before it has anything to read.
    """

    bounded: bool
    """True when the partitions are fixed at the start and all end."""

    def partitions(self) -> Sequence[Partition]:
        """What there is to read now. Called once by the driver for a bounded source (the answer is kept in the
        root), and about once a second by every source shard for an unbounded one."""

    def open(self, partition: Partition) -> Reader:
        """Raises SetupError, with a sentence, when the partition cannot be read; ExhaustedError when it cannot be read
        now. So does a read."""
