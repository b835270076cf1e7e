"""Batches of sinks that another thread prepares, while the bundle that will commit them waits and other shards work on.

The bundle runs, and so is committed, only once its batch is written: a committable never names a batch that a power cut
may take back. See mistake batches_committed_before_they_are_prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millwheel.connectors.external.meanings import is_of_client, named
from millwheel.core.model.names import ShardName, Token
from millwheel.errors import InvariantError
from millwheel.sinks.base import Refused, SinkBatch, Writer
from millwheel.workers import events as ev


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of a batch. ``refused`` are records that are not in it."""

    committable: bytes
    refused: Sequence[Refused]


def prepared(writer: Writer, batch: SinkBatch) -> Prepared:
    """Prepare a batch, on this thread."""
    committable = writer.prepare(batch)
    return Prepared(committable, writer.take_refused())


@dataclass(frozen=True, slots=True)
class Preparation:
    """A batch for another thread to prepare. ``told(found, error)`` is for the loop again."""

    shard: ShardName
    token: Token
    batch: SinkBatch
    writer: Writer
    told: Callable[[Prepared | None, Exception | None], None]

    @property
    def lane(self) -> str:
        """Each shard has a thread of its own: its batches are prepared one after the other, and a large one delays no
        publication."""
        return f"prepare {self.shard}"

    def carried_out(self) -> ev.WorkDone:
        """Prepare it. What went wrong is for the loop to raise."""
        found, error = self._prepared()
        return ev.WorkDone(self.shard, self.token, lambda _: self.told(found, error))

    def _prepared(self) -> tuple[Prepared | None, Exception | None]:
        try:
            return prepared(self.writer, self.batch), None
        except Exception as ex:
            return None, ex
        except BaseException as ex:  # of a library: the thread must not end in silence
            if not is_of_client(ex):
                raise
            return None, InvariantError(f"a batch was not prepared, and its thread was told to end: {named(ex)}")
