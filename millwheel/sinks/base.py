"""The contract of a sink: write invisibly, then, once the commit is durable, make it visible.

Third parties register a factory under the entry point group ``millwheel.sinks``:
``name = "package.module:factory"``, where ``factory(options, folder) -> Sink``.

Per shard of the sink the runtime calls, in this order and never concurrently:

1. ``prepare(cut)``: write the records so that they survive a crash but no reader sees them; return a receipt.
2. the runtime commits receipt and input marks in one journal entry;
3. ``publish(receipt)``: make them visible. Called again after a crash with the same receipt, by this process
   or by another one, possibly while a zombie calls it too: it must be idempotent.

A cut that was prepared but never committed is never published; ``sweep`` may delete what it left behind.

A writer with ``publishes_aside = True`` lets ``publish`` run on another thread than the rest, at the same time; then a
worker never waits for it.

Receipts are part of commits, so a few hundred bytes are right and a megabyte is the limit of what is wise. A sink
that has nowhere to hide data may put the data itself into the receipt. Then nothing is ever lost, but a
crash between ``publish`` and the next commit publishes it twice: such a sink is at-least-once, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millwheel.core.columns.batch import ColumnBatch
from millwheel.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record on its way out. ``value`` is plain data: dicts, lists, text, bytes, numbers, booleans, None."""

    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What is written together. ``number`` counts the cuts of a shard from 0, without gaps once committed.

    ``attempt`` is unique to this try, ``<token>-<counter>``: two tries of the same number never share a file. The
    records are in ``records``; only for a writer with ``takes_columns`` they may be in ``columns`` instead.
    """

    number: int
    attempt: str
    records: list[SinkRecord]
    columns: Sequence[ColumnBatch] = ()


class LostError(UnavailableError):
    """A prepared cut is gone: a retry of its publication cannot work, preparing it again can."""


class SinkWriter(Protocol):
    """Writes the cuts of one shard."""

    def prepare(self, cut: Cut) -> bytes:
        """Durable but invisible. The receipt is all that ``publish`` gets."""

    def publish(self, receipt: bytes) -> None:
        """Visible. Idempotent. Raises UnavailableError when it should be tried again."""

    def sweep(self, receipts: list[bytes]) -> None:
        """Called when a shard opens, after ``publish`` of every committed receipt in ``receipts``: remove what
        older, uncommitted attempts of this shard left behind. Attempts with a newer token than this writer's
        belong to a living successor and must stay."""

    def close(self) -> None: ...


class Sink(Protocol):
    """A description of an output, cheap to construct; built on the driver and in every worker.

    Three attributes are optional. ``takes_retractions`` (False): the sink understands records that take back earlier
    ones (:func:`millwheel.as_retraction`). ``keeps_latest`` (False): it shows the rows that stand. Each cut then holds
    all rows of the shard and replaces the cut before; publishing an older cut must never replace a newer one, and
    after ``sweep`` nothing that an older owner prepared may be published any more. ``publish`` raises
    :class:`LostError` when what was prepared is gone.

    ``shows_at_once`` (False) says that a cut is published before it is committed: earlier by a write of the
    journal. After a crash the records are published again, in other cuts whose numbers may have been used before, so
    ``publish`` must keep what it has shown, and no reader may count on seeing a record once.

    A method is optional, too: ``adopt(former, identity)``, called before :meth:`check` when the run begins with the
    savepoint with which the run on the root ``former`` has ended. What that has written may become ours then.
    """

    flush_us: int
    """How long a record may wait for its cut to fill up, µs."""
    cut_records: int
    """A cut is written once it has so many records."""

    def check(self, identity: str) -> None:
        """Called once by the driver before anything starts. ``identity`` names the root this run belongs to.
        Raises SetupError when the output cannot be written or holds the results of another root."""

    def open(self, shard: str, token: int) -> SinkWriter:
        """A writer for one shard (``shard`` is unique in the pipeline and safe in file names) under the lease
        ``token`` with which the attempts of its cuts begin."""
