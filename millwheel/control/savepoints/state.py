"""Taking a savepoint, or ending the sources, as a pure machine: observations in, the next order to
the workers out.

    REST   every shard finishes the records in flight
    HOLD   every shard stands still and reports its last commit; nothing is in flight (else: REST
           again)
    SAVE   every shard is copied at that commit, and still stands there (else: REST again); or
    FINISH the sources end at their current positions

To wait until the pipeline has caught up, the machine begins with

    SETTLE every shard has nothing to do, including the work that windows and timers started

Why the copies belong together: each shard stood at its commit in the cut before the order to save
was given, and is copied only if it still stands there afterwards. Commits are numbered. So at the
moment of the order all shards stood at the cut at once, and nothing was in flight between them. An
owner that was replaced unnoticed cannot copy its shard: a copy counts only if its maker's journal
is not sealed, and no successor begins before it is.

Why sources catch up before they end: only a source's owner can list the records that were read and
sent, but not yet committed as read. If it died, some consumers may have applied records that others
have not. So its successor first reads all input that exists at the time, which includes any such
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from millwheel.control.savepoints.orders import OrderAnswer, Phase, SavepointOrder, Standing
from millwheel.core.model.lease import Lease
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import UnavailableError, invariant

_COPY_TRIES = 5  # attempts while shards change owners; after that the savepoint is abandoned


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """The savepoint to take: a name that is never used again, the folder, the nodes of the
    pipeline, whether the pipeline stays still afterwards, and how long (µs) to wait for it to come
    to rest. ``finish``: its sources end. ``caught_up``: take no savepoint, but wait until this
    function, called with the tables and the state of all shards, returns that all input up to its
    ends has been processed."""

    savepoint: str
    folder: str
    nodes: tuple[str, ...]
    stay: bool = False
    patience_us: int = 60_000_000
    finish: bool = False
    caught_up: Callable[[Sequence[RangeTable], Mapping[str, Standing]], bool] | None = None


@dataclass(slots=True)
class Taking:
    """Takes one savepoint. ``order`` is the last order given; ``cut`` is the result once it is
    ``done``."""

    request: SavepointRequest
    order: SavepointOrder | None = None
    done: bool = False
    held_us: int = 0
    tables: tuple[RangeTable, ...] = ()
    stands: Mapping[str, Standing] = field(default_factory=dict)
    _began_us: int = -1
    _held_since_us: int = 0
    _tries: int = 0
    _answered: dict[str, Standing] = field(default_factory=dict)

    @property
    def cut(self) -> Mapping[str, Standing]:
        """The state of each shard at its commit."""
        return self.order.cut if self.done and self.order else {}

    def step(
        self, now_us: int, tables: Mapping[str, RangeTable], answers: Sequence[OrderAnswer]
    ) -> SavepointOrder | None:
        """The next order; None while answers are missing. ``answers`` are those to :attr:`order`.

        Raises UnavailableError, with a sentence, if the pipeline does not come to rest or cannot be
        copied.
        """
        if self._began_us < 0:
            self._began_us = now_us
            return self._again(now_us)
        assert self.order is not None
        latest = _latest(answers)
        problem = next((answer.problem for answer in answers if answer.problem), "")
        if self.order.phase is Phase.SAVE:
            return self._after_save(now_us, tables, latest, problem)
        self._answered = latest
        standing = self._all_answers(tables, latest)
        if standing is None:
            self._check_patience(now_us, tables)
            return None
        if self.order.phase is Phase.SETTLE:
            return self._next(Phase.REST, now_us)
        if self.order.phase is Phase.REST:
            return self._next(Phase.HOLD, now_us)
        if any(each.unfinished for each in standing.values()):
            self._check_patience(now_us, tables)
            return self._again(now_us)
        if self.request.caught_up is not None:
            return self._unless_caught_up(
                now_us, [tables[node] for node in self.request.nodes], standing
            )
        if self.request.finish:
            self.done = True
            return self._next(Phase.FINISH, now_us)
        self.tables = tuple(tables[node] for node in self.request.nodes)
        return self._next(Phase.SAVE, now_us, standing)

    def _again(self, now_us: int) -> SavepointOrder:
        """Let the pipeline come to rest; by itself if it has to catch up, including the work of
        windows and timers."""
        return self._next(Phase.REST if self.request.caught_up is None else Phase.SETTLE, now_us)

    def _unless_caught_up(
        self, now_us: int, tables: Sequence[RangeTable], standing: Mapping[str, Standing]
    ) -> SavepointOrder | None:
        """All shards stand still and no record is in flight, but a watermark may be, and it can
        start more work."""
        assert self.request.caught_up is not None
        self.tables, self.stands = tuple(tables), standing
        self.done = self.request.caught_up(tables, standing)
        return None if self.done else self._again(now_us)

    def _after_save(
        self,
        now_us: int,
        tables: Mapping[str, RangeTable],
        latest: Mapping[str, Standing],
        problem: str,
    ) -> SavepointOrder | None:
        assert self.order is not None
        cut = self.order.cut
        if not problem and all(latest.get(shard) == standing for shard, standing in cut.items()):
            # Copies at different commits would have records twice, or not at all.
            invariant(bool(cut), "a savepoint without shards is done")
            self.done = True
            self.held_us = now_us - self._held_since_us
            return None
        if not problem and self._stands(tables, cut):
            return None
        self._tries += 1
        if self._tries >= _COPY_TRIES:
            why = problem or "its shards changed owners each time"
            raise UnavailableError(f"The savepoint was given up after {_COPY_TRIES} tries: {why}")
        return self._next(Phase.REST, now_us)

    def _stands(self, tables: Mapping[str, RangeTable], cut: Mapping[str, Standing]) -> bool:
        """Whether the owners that have to copy still own their shards."""
        entries = [entry for node in self.request.nodes for entry in tables[node].shards]
        return all(
            entry.shard in cut and entry.lease.admits(cut[entry.shard].token) for entry in entries
        )

    def _all_answers(
        self, tables: Mapping[str, RangeTable], latest: Mapping[str, Standing]
    ) -> dict[str, Standing] | None:
        """The answers of all shards, each from its owner; None until all have answered."""
        answers: dict[str, Standing] = {}
        for node in self.request.nodes:
            if node not in tables:
                return None
            for entry in tables[node].shards:
                standing = latest.get(entry.shard)
                # A zombie's shard is at rest for ever, and lacks the commits of its successor.
                if standing is None or not entry.lease.admits(standing.token) or not entry.owner:
                    return None
                answers[entry.shard] = standing
        return answers

    def _check_patience(self, now_us: int, tables: Mapping[str, RangeTable]) -> None:
        if now_us - self._began_us <= self.request.patience_us:
            return
        entries = [
            entry.shard
            for node in self.request.nodes
            if node in tables
            for entry in tables[node].shards
        ]
        missing = [
            shard
            for shard in entries
            if shard not in self._answered or self._answered[shard].unfinished
        ]
        seconds = self.request.patience_us // 1_000_000
        raise UnavailableError(
            f"The pipeline did not come to rest within {seconds} s, so nothing was done and it"
            " continues. Still working:"
            f" {', '.join(missing[:5]) or 'nodes without range tables'}"
            f"{' …' if len(missing) > 5 else ''}."
            " `millwheel status` shows what each waits for; try again later or with a longer"
            " --timeout"
        )

    def _next(
        self, phase: Phase, now_us: int, cut: Mapping[str, Standing] | None = None
    ) -> SavepointOrder:
        if phase is Phase.HOLD:
            self._held_since_us = now_us
        number = self.order.number + 1 if self.order else 1
        request = self.request
        # A shard that is not in the cut is not copied, and missing in the savepoint.
        shards = {entry.shard for table in self.tables for entry in table.shards}
        invariant(
            phase is not Phase.SAVE or (cut is not None and cut.keys() == shards),
            f"of the shards {sorted(shards)} these stand still: {sorted(cut or ())}",
        )
        folder, cut = request.folder, dict(cut or {})
        # Not when the sources are ordered to end: a timer that is due while nothing may begin would
        # be due for ever. See test_sources_are_told_to_end_although_timers_are_due.
        settle = request.caught_up is not None
        self.order = SavepointOrder(
            request.savepoint,
            number,
            phase,
            folder,
            request.stay,
            request.finish or settle,
            settle,
            cut,
        )
        return self.order


def _latest(answers: Sequence[OrderAnswer]) -> dict[str, Standing]:
    """The latest answer about each shard, from its last owner. A former owner that gave the shard
    away is alive and its answer stays, so the order in which the answers are listed means nothing:
    see mistake the_last_answer_in_the_list_counts."""
    latest: dict[str, Standing] = {}
    for answer in answers:
        for shard, standing in answer.shards.items():
            if shard not in latest or not Lease(latest[shard].token).outlived(standing.token):
                latest[shard] = standing
    return latest
