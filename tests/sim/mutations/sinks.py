"""Deliberate mistakes in sinks that prepare and publish aside."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from millwheel.connect.connectors.external import sink as external
from millwheel.connect.connectors.external.meanings import UnknownError
from millwheel.connect.connectors.external.sink import ExternalWriter
from millwheel.connect.connectors.external.target import Owner
from millwheel.connect.connectors.tables import committer
from millwheel.connect.connectors.tables.table import TableMark
from millwheel.core.formats.store_layout import COMMITTABLE, NEXT_BATCH, number8
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.sinks import sink
from millwheel.engine.workers.sinks.preparing import Prepared
from millwheel.engine.workers.sinks.sink import SinkOperator
from millwheel.errors import UnavailableError
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20, workload="transactional")
def next_batch_does_not_wait() -> Context:
    """A batch is sent although the one before it was not taken yet, and may have to be sent
    again."""
    right = SinkOperator._publish

    def wrong(self: SinkOperator, *given: Any) -> None:
        self._in_order = False
        right(self, *given)

    return replaced(SinkOperator, "_publish", wrong)


@mistake(within=20, faults="kill kill-again slow-disk", workload="transactional")
def batches_of_the_former_owner_forgotten() -> Context:
    """What a dead owner has committed, and perhaps not published, is nobody's."""

    def wrong(self: SinkOperator, store: Any) -> int:
        data = store.get(NEXT_BATCH)
        return 0 if data is None else int.from_bytes(data, "big")

    return replaced(SinkOperator, "_recover", wrong)


@mistake(
    within=20, faults="kill kill-again slow-disk sync power", workload="transactional", first=91
)
def batches_published_before_their_commit() -> Context:
    """Batches are published as soon as they are prepared."""
    right = SinkOperator.run

    def wrong(self: SinkOperator, bundle: Any) -> None:
        right(self, bundle)
        self._durable = MAX_TIME
        self._publish(bundle.now_us)

    return replaced(SinkOperator, "run", wrong)


@mistake(within=20, faults="none", workload="transactional")
def batch_not_tried_again() -> Context:
    """A batch that the target did not take counts as published."""
    right = SinkOperator._take_outcome

    def wrong(self: SinkOperator, pending: Any, error: Exception | None, now_us: int) -> None:
        right(self, pending, None if isinstance(error, UnavailableError) else error, now_us)

    return replaced(SinkOperator, "_take_outcome", wrong)


@mistake(within=10, faults="kill kill-again slow-disk", workload="transactional", first=6)
def batch_with_refused_rows_kept() -> Context:
    """Letters are committed, and the batch stays in the store as it was: its successor is refused,
    and tells, once more."""
    right = SinkOperator._leave_out_refused

    def wrong(self: SinkOperator, bundle: Any) -> None:
        refused = [pending.number for pending in self._pending if pending.refused]
        kept = {number: bundle.overlay.get(COMMITTABLE + number8(number)) for number in refused}
        right(self, bundle)
        for number, committable in kept.items():
            bundle.overlay.put(COMMITTABLE + number8(number), committable)

    return replaced(SinkOperator, "_leave_out_refused", wrong)


@mistake(within=20, faults="none", workload="transactional")
def batches_behind_a_split_one_keep_their_numbers() -> Context:
    """A part of a batch that was split, and the batch behind it, have one number: the target takes
    only one of them."""

    def wrong(batches: Any, writer: Any, commit: int) -> Any:
        first, *others = batches
        parts = [replace(first, committable=part, number=first.number + at, commit=commit, parts=())
                 for at, part in enumerate(first.parts)]  # fmt: skip
        return deque([*parts, *others])

    return replaced(sink, "in_parts", wrong)


@mistake(within=20, faults="kill kill-again slow-disk", workload="transactional")
def parts_of_a_batch_not_committed() -> Context:
    """The parts of a batch are published, and the store keeps the batch: its successor publishes it
    under other numbers."""
    right = SinkOperator._leave_out_refused

    def wrong(self: SinkOperator, bundle: Any) -> None:
        kept = {
            pending.number: pending.committable
            for pending in self._pending
            if self._pending[0].parts
        }
        right(self, bundle)
        for number, committable in kept.items():
            bundle.overlay.put(COMMITTABLE + number8(number), committable)

    return replaced(SinkOperator, "_leave_out_refused", wrong)


@mistake(within=20, faults="kill kill-again slow-disk", first=31)
def swept_before_it_is_published() -> Context:
    """What earlier owners left behind is removed as soon as a sink opens."""
    right = SinkOperator._publish

    def wrong(self: SinkOperator, now_us: int) -> None:
        unswept, self._unswept = self._unswept, None
        if unswept is not None:
            self._writer.sweep(unswept)
        right(self, now_us)

    return replaced(SinkOperator, "_publish", wrong)


@mistake(within=20, faults="kill kill-again slow-disk", first=2)
def batches_committed_before_they_are_prepared() -> Context:
    """A bundle does not wait for the thread that prepares its batch: what its commit names may
    never be written."""
    right = SinkOperator.ask

    def wrong(self: SinkOperator, bundle: Any, now_us: int) -> bool:
        if right(self, bundle, now_us):
            committable = self._writer.prepare(self._preparing.batch)
            self._writer._world.prepared.pop(committable)  # type: ignore[attr-defined]  # written only by the thread
            self._preparing._found = Prepared(committable, ())
        return False

    return replaced(SinkOperator, "ask", wrong)


@mistake(within=10, faults="kill move", workload="lakes", first=9)
def panic_of_a_client_taken_for_an_answer() -> Context:
    """A batch is published once its client has panicked."""
    right = ExternalWriter._after

    def wrong(self: ExternalWriter, batch: Any, sent: int, error: Exception) -> int:
        return batch.number if isinstance(error, UnknownError) else right(self, batch, sent, error)

    return replaced(ExternalWriter, "_after", wrong)


@mistake(within=10, faults="none", workload="lakes", first=9)
def panic_of_a_client_ends_its_thread() -> Context:
    """Only an Exception counts as a failure of the client."""
    return replaced(external, "is_of_client", lambda error: isinstance(error, Exception))


@mistake(within=40, faults="zombie false-alarm pause move", workload="lakes", first=6)
def token_of_a_table_not_looked_at() -> Context:
    """A batch is committed to a table whoever has claimed its shard since."""
    return replaced(Owner, "admits", lambda self, token: None)


@mistake(within=10, faults="kill move", workload="lakes")
def number_of_a_table_not_looked_at() -> Context:
    """A batch is committed to a table although it may be there: the answer to it was lost."""
    right = committer._change_of

    def wrong(version: Any, jobs: Any) -> Any:
        return right(_Forgetful(version), jobs)

    return replaced(committer, "_change_of", wrong)


class _Forgetful:
    """A version of a table that knows no batches."""

    def __init__(self, version: Any) -> None:
        self.schema, self._version = version.schema, version

    def mark(self, name: str) -> TableMark:
        return TableMark(token=self._version.mark(name).token)
