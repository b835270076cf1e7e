"""Effects of the master. They show the order in which a death is handled: a table that names a dead
worker's successor is written only after the event that answers ``SealJournal``."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SealJournal:
    """Close a dead worker's journal, answer with JournalSealed or SealFailed. ``urgent``: its
    shards wait for that."""

    incarnation: WorkerName
    reason: str
    urgent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRangeTable:
    """Compare-and-set on the version inside; answer with TableChanged, WriteConflicted or
    WriteFailed."""

    table: RangeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMember:
    """Remove a dead worker that no longer owns anything from the membership."""

    incarnation: WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachWorker:
    """Keep a connection to a living worker open. The worker reports loads and releases on it; it
    breaks when the process dies."""

    incarnation: WorkerName
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachWorker:
    """Close the connection to a worker that is dead or has left."""

    incarnation: WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectJournal:
    """Delete the segments of a sealed journal that no table needs. The seal stays."""

    incarnation: WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMove:
    """Answer a MoveRequested or ReshardRequested. ``refusal`` is empty when the stored table
    contains the change."""

    ticket: int
    refusal: str = ""


Effect = (
    SealJournal
    | WriteRangeTable
    | RemoveMember
    | AttachWorker
    | DetachWorker
    | CollectJournal
    | AnswerMove
)
