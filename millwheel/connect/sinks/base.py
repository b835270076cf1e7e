"""The contract of a sink: write invisibly, then, once the commit is durable, make it visible.

Third parties register a factory under the entry point group ``millwheel.sinks``:
``name = "package.module:factory"``, where ``factory(options, folder) -> Sink``.

Per shard of the sink the runtime calls, in this order and never concurrently:

1. ``prepare(batch)``: write the records so that they survive a crash but no reader sees them;
   return a committable.
2. the runtime commits committable and high-water marks in one journal entry;
3. ``publish(committable)``: make them visible. Called again after a crash with the same
   committable, by this process or by another one, possibly while a zombie calls it too: it must be
   idempotent.

A batch that was prepared but never committed is never published; ``sweep`` may delete what it left
behind.

Committables are part of commits: a few hundred bytes are right, a megabyte is the upper limit. A
sink that has nowhere to hide data may put the data itself into the committable. Then nothing is
ever lost, but a crash between ``publish`` and the next commit publishes it twice. Such a sink is
at-least-once and must document it.

Derive from :class:`Sink` and :class:`Writer`: a capability that a class does not define has the
default of the base class. An object with the necessary methods only is wrapped (``plug_ins.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.times import duration_us
from millwheel.core.tracing import TraceContext
from millwheel.errors import InvariantError, MillwheelError, UnavailableError


@dataclass(slots=True, unsafe_hash=True)
class SinkRecord:
    """One record on its way out. It is never changed, but not frozen: there is one for each row,
    and a frozen dataclass takes four times as long to make.

    ``value`` is plain data: dicts, lists, text, bytes, numbers, booleans, None.
    """

    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The records that a sink writes together. ``number`` counts the batches of a shard from 0,
    without gaps once committed.

    ``attempt`` is unique to this attempt, ``<token>-<counter>``: two attempts of the same number
    never share a file. The records are in ``records``; only for a writer with ``takes_columns``
    they may be in ``columns`` instead. ``traces`` are the contexts of the traced ones, by index,
    for targets that have headers.
    """

    number: int
    attempt: str
    records: list[SinkRecord]
    columns: Sequence[ColumnBatch] = ()
    traces: Mapping[int, TraceContext] = field(default_factory=dict)


Cut = SinkBatch
"""The earlier name, for plug-ins that import it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that the target cannot take, and the reason: it becomes a dead letter."""

    record: SinkRecord
    reason: str


class LostError(UnavailableError):
    """A prepared batch is gone: publishing it cannot succeed any more, preparing it again can."""


class BatchRefusedError(MillwheelError):
    """Nothing of a committed batch is visible, because the target does not take the records in
    ``refused``. They become dead letters, in one commit with ``committable``, the batch without
    them, which is then published instead."""

    def __init__(self, refused: Sequence[Refused], committable: bytes) -> None:
        super().__init__("; ".join(each.reason for each in refused))
        self.refused = tuple(refused)
        self.committable = committable


class BatchSplitError(MillwheelError):
    """Nothing of a committed batch is visible, and as a whole it never will be: ``parts`` are
    committables that hold its records in their order, numbered from its number on. One commit
    replaces the batch by them, and gives later batches the numbers behind
    (:meth:`Writer.renumbered`). Only for a writer that ``publishes_in_order``."""

    def __init__(self, reason: str, parts: Sequence[bytes]) -> None:
        super().__init__(reason)
        self.parts = tuple(parts)


class Writer(ABC):
    """Writes the batches of one shard.

    The order of calls: :meth:`publish` for each batch that was committed before the shard was
    opened; :meth:`sweep` once; then, for each batch, :meth:`prepare` and, once its commit is
    durable, :meth:`publish`; :meth:`close` at the end. The next batch may be prepared before the
    previous one is published.
    """

    takes_columns: bool = False
    """True when :attr:`SinkBatch.columns` may hold the records of a batch instead of
    :attr:`SinkBatch.records`."""
    publishes_aside: bool = False
    """True when :meth:`publish` may run on another thread than the rest, at the same time. Then the
    worker's loop never waits for it; otherwise a slow ``publish`` holds up all shards of the
    worker."""
    prepares_aside: int = 0
    """Above 0: a batch of at least so many records may be prepared on another thread, at the same
    time as the rest. Then a slow ``prepare`` holds up neither the loop nor other shards; its commit
    waits for it. Only together with :attr:`publishes_aside`. For small batches it takes longer to
    wake a thread than to prepare them."""
    publishes_in_order: bool = False
    """True when a batch must be visible before the next one is published. Only together with
    :attr:`publishes_aside`. Committed batches of a former owner are then published on that thread,
    too, and not while the shard is opened."""
    lane: str = ""
    """Publications of one lane share a thread. An outside system that may be away for minutes needs
    a lane of its own. Otherwise all other sinks of the worker wait with it."""

    @abstractmethod
    def prepare(self, batch: SinkBatch) -> bytes:
        """Write a batch so that it survives a crash and no reader sees it. Return its committable,
        the only argument of :meth:`publish`.

        Showing anything here breaks exactly-once: after a crash before the commit, the same records
        come again in different batches. Raises UnavailableError to be called again with the same
        batch in 100 ms, for example while a disk is full: until then the records wait, and the
        input with them. Any other error ends the worker, and the next owner gets the records
        again."""

    def take_refused(self) -> list[Refused]:
        """Records of the last :meth:`prepare` that are not in its committable, because the target
        cannot take them. Called once after each ``prepare``. Only the record itself may decide:
        after a crash the same record must be refused again."""
        return []

    @abstractmethod
    def publish(self, committable: bytes) -> None:
        """Make a prepared batch visible.

        Called again with the same committable after a crash, after an UnavailableError, and
        possibly by a zombie at the same time: it must be idempotent, also between processes. Raises
        UnavailableError to be called again in 100 ms, :class:`BatchRefusedError` for records that
        the target does not take, :class:`BatchSplitError` when it does not name the records at
        fault. Any other error ends the worker, and the next owner tries again."""

    def renumbered(self, committable: bytes, number: int) -> bytes:
        """A committable that was not published, with another number. Only for a writer that raises
        :class:`BatchSplitError`."""
        raise InvariantError(f"{type(self).__name__} splits batches, but does not number them anew")

    @abstractmethod
    def sweep(self, committables: list[bytes]) -> None:
        """Remove what older, uncommitted attempts of this shard left behind. Called once, after the
        shard has opened. ``committables`` are the committed ones: ``publish`` has ended for each of
        them, and was called for no others.

        Attempts with a newer token than this writer's belong to a living successor: removing them
        loses its results. For a sink that ``keeps_latest`` this is also the fence: afterwards
        nothing that an older owner prepared may be published any more."""

    def close(self) -> None:
        """Release files and connections. A publication on another thread may still be running."""
        return


SinkWriter = Writer
"""The earlier name, for plug-ins that import it."""


class Sink(ABC):
    """A description of an output, cheap to construct: it is built by the driver and in every
    worker.

    A class must have :meth:`check` and :meth:`open`; the other capabilities have defaults.
    """

    identity: str = ""
    """Names the root of the run; set before :meth:`open`, for names in other systems that no other
    run may use. Empty while a pipeline is only checked."""
    flush_us: int = 1_000_000
    """The longest time that a record waits for its batch to fill up, µs."""
    cut_records: int = 50_000
    """A batch is written once it has this many records."""
    takes_retractions: bool = False
    """The sink handles records that take back earlier ones (:func:`millwheel.as_retraction`).
    Without it a stream that carries such records is refused when the pipeline is checked."""
    replaces_rows: bool = False
    """A row replaces the one before it with the same identity, so the pipeline must declare the
    contents of the panes of a window that fires again."""
    keeps_latest: bool = False
    """The sink shows the current rows. Each batch then holds all rows of the shard and replaces the
    previous batch. Publishing an older batch must never replace a newer one; ``publish`` raises
    :class:`LostError` when the prepared batch is gone, and the rows are then prepared again."""
    shows_at_once: bool = False
    """A batch is published before it is committed, which saves the wait for a journal write. After
    a crash the records are published again, in other batches whose numbers may have been used
    before. So ``publish`` must not remove anything it has shown, and readers must expect to see a
    record more than once."""

    @abstractmethod
    def check(self, identity: str) -> None:
        """Called once by the driver before anything starts. ``identity`` names the root that this
        run belongs to. Raises SetupError when the output cannot be written or holds the results of
        another root: two runs that write to the same output would replace or double each other's
        results."""

    def check_fields(self, fields: Sequence[str]) -> None:
        """Called by the driver after :meth:`check`, if the rows can have these fields and no
        others. Raises SetupError when the output cannot take them, so that not every row of the run
        becomes a dead letter."""
        return

    def discard(self, identity: str) -> str:
        """Remove the results of the root with this identity, and nothing else, before the root is
        emptied. Returns a sentence about the results that stay, "" for none; those in other systems
        usually stay."""
        return "its rows stay where they are"

    def adopt(self, former: str, identity: str) -> None:
        """Called before :meth:`check` if this run starts from the savepoint with which the run on
        the root ``former`` ended. The output of that run may become this run's now."""
        return

    @abstractmethod
    def open(self, shard: str, token: int) -> Writer:
        """Return a writer for one shard (``shard`` is unique in the pipeline and safe in file
        names). The attempts of its batches begin with the lease ``token``. A writer with an older
        token may still be running elsewhere."""


def flush_us(text: str | int) -> int:
    """The option ``flush`` in µs. Raises ValueError, with a sentence."""
    try:
        flush = duration_us(text)
    except ValueError as ex:
        raise ValueError(f"option 'flush': {ex}") from None
    if flush < 0:
        raise ValueError(f"option 'flush' is {text}; write a duration, for example flush: 1s")
    return flush
