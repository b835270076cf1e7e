"""One committer for all shards of a process that write to the same table. It puts all waiting
batches into one commit.

Commits of a table are made one after the other, and each builds on the last. Shards that committed
on their own would have to retry often. Between processes the table decides: a commit that is not
first reads the table again and retries.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pyarrow as pa

from millwheel.adapters.rights import under_users_umask
from millwheel.connect.connectors.external.meanings import RowToBlameError, UnknownError
from millwheel.connect.connectors.external.target import NOTHING_YET, Owner
from millwheel.connect.connectors.tables.table import (
    LakeTable,
    TableChange,
    TableConflictError,
    TableMark,
    TableVersion,
)
from millwheel.core.model.lease import Lease
from millwheel.errors import MillwheelError, UnavailableError

log = logging.getLogger("millwheel.tables")
_TRIES = 20  # conflicts of one commit
_LONGEST_WAIT_S = 1.0  # after a conflict: commits of others take less


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows of one batch. With ``by`` the rows of the same identities are replaced; ``gone`` are
    identities whose rows are removed."""

    add: pa.Table
    by: tuple[str, ...] = ()
    gone: pa.Table | None = None


@dataclass(slots=True)
class _Job:
    """A request of one shard: a claim, or with ``rows`` a batch."""

    owner: Owner
    number: int = NOTHING_YET
    rows: Callable[[TableVersion], PreparedRows] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    last: int = NOTHING_YET
    error: BaseException | None = None


class Committer:
    """The committer of one table in this process. For any thread."""

    def __init__(self, table: LakeTable, sleep: Callable[[float], None] = time.sleep) -> None:
        self._table = table
        self._sleep = sleep
        self._committing = threading.Lock()
        self._guard = threading.Lock()
        self._waiting: list[_Job] = []

    def claim(self, owner: Owner) -> int:
        """Note the owner's token. Returns the number of the shard's last batch. Raises FencedError
        if a newer token is noted."""
        return self._done(_Job(owner)).last

    def write(
        self, owner: Owner, number: int, rows: Callable[[TableVersion], PreparedRows]
    ) -> None:
        """Commit a batch with its number, unless that has happened."""
        self._done(_Job(owner, number, rows))

    def _done(self, job: _Job) -> _Job:
        with self._guard:
            self._waiting.append(job)
        with self._committing:  # the first thread commits for all that are waiting by then
            # Not once: a commit leaves out a job behind another of its shard, and this may be such
            # a job (test_a_batch_behind_a_claim_of_its_shard_is_done_when_it_returns).
            while not job.done.is_set():
                self._commit_waiting()
        if job.error is not None:
            raise job.error
        return job

    def _commit_waiting(self) -> None:
        jobs = self._taken()
        try:
            self._commit_together(jobs)
        except BaseException as ex:
            for job in jobs:
                job.error = job.error or ex
        finally:
            # In any case: a thread waits for each, and would do so for ever.
            for job in jobs:
                job.done.set()

    def _taken(self) -> list[_Job]:
        """The jobs of the next commit: one of each shard, in their order. The others' threads wait
        behind it."""
        # A mark is that of one job: with a batch and a claim of one shard in a commit, the claim
        # would be answered that the batch is not there, or a token would go back
        # (test_a_claim_and_a_batch_of_one_shard_never_share_a_commit).
        with self._guard:
            first: dict[str, _Job] = {}
            for job in self._waiting:
                first.setdefault(job.owner.name, job)
            jobs = list(first.values())
            self._waiting = [job for job in self._waiting if first[job.owner.name] is not job]
        return jobs

    def _commit_together(self, jobs: list[_Job]) -> None:
        """Commit all jobs, or, where the table refuses them together, each alone: one may be to
        blame."""
        try:
            self._commit(jobs)
        except (RowToBlameError, UnknownError):
            if len(jobs) == 1:
                raise
            for job in jobs:
                if job.error is None:
                    self._commit_alone(job)

    def _commit_alone(self, job: _Job) -> None:
        try:
            self._commit([job])
        except MillwheelError as ex:
            job.error = ex

    def _commit(self, jobs: list[_Job]) -> None:
        for attempt in range(_TRIES):
            # Anew for each try: the commit that was first may hold a batch of ours, or the claim of
            # our successor (test_other_writers_do_not_stop_a_committer).
            version = self._table.look()
            change = _change_of(version, [job for job in jobs if job.error is None])
            if change is None:
                return
            try:
                with under_users_umask():
                    version.commit(change)
            except TableConflictError as ex:
                log.debug("%s: %s; trying again", self._table.where, ex)
                # By chance: two that have met would meet again at the same moment.
                self._sleep(min(_LONGEST_WAIT_S, 0.01 * 2**attempt) * random.random())
            else:
                return
        raise UnavailableError(
            f"{self._table.where} was changed by others {_TRIES} times while rows were committed"
        )


def _change_of(version: TableVersion, jobs: list[_Job]) -> TableChange | None:
    """The change that the jobs make to this version; None when there is nothing left to do."""
    marks: dict[str, TableMark] = {}
    parts: list[PreparedRows] = []
    for job in jobs:
        mark = version.mark(job.owner.name)
        job.last = mark.number
        try:
            # On the version on which it is committed: a newer owner whose claim lies behind it
            # makes the commit fail.
            job.owner.admits(mark.token)
            rows = None if job.rows is None or job.number <= mark.number else job.rows(version)
        except BaseException as ex:
            job.error = ex
            continue
        if rows is not None:
            parts.append(rows)
        if rows is not None or Lease(job.owner.token).outlived(mark.token):
            marks[job.owner.name] = TableMark(
                mark.number if rows is None else job.number, job.owner.token
            )
    if not marks:
        return None
    return _together(version.schema, marks, parts)


def _together(
    schema: pa.Schema, marks: dict[str, TableMark], parts: list[PreparedRows]
) -> TableChange:
    add = pa.concat_tables([part.add for part in parts]) if parts else schema.empty_table()
    by = [part for part in parts if part.by]
    removed = [part.add.select(list(part.by)) for part in by] + [
        part.gone for part in by if part.gone is not None
    ]
    return TableChange(marks, add, pa.concat_tables(removed) if removed else None)


_committers: dict[tuple[Hashable, ...], Committer] = {}
_lock = threading.Lock()


def committer_of(table: LakeTable) -> Committer:
    """The shared committer of a table in this process. Tables of one name in two catalogs or stores
    are two tables."""
    with _lock:
        return _committers.setdefault(table.identity, Committer(table))
