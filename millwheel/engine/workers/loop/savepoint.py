"""A worker's part in a savepoint: come to rest, hold still, copy its shards, continue.

The process that ordered the savepoint decides whether it is complete (``savepoints/state.py``), not
the worker. A worker reports where its shards stand, and copies a shard only if it still stands
where the cut has it. Since commits are numbered, a shard that stood there before the cut was
ordered and stands there afterwards has stood there in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millwheel.control.savepoints.orders import (
    OrderAnswer,
    Phase,
    SavepointOrder,
    Standing,
    standing_order,
)
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ShardName
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.loop.shard_handle import Served
from millwheel.engine.workers.ports import Savepoints
from millwheel.engine.workers.shard.shard import Shard
from millwheel.errors import CorruptionError

_RESTING = (Phase.REST, Phase.HOLD, Phase.SAVE)


@dataclass(slots=True)
class _Doing:
    """How far this worker is with the current order. ``answered`` are the shards that are answered
    for, under their tokens; ``copied`` those whose copies are on their way."""

    order: SavepointOrder
    answered: dict[str, Lease] = field(default_factory=dict)
    copied: dict[str, Standing] = field(default_factory=dict)


class SavepointPart:
    """The part of one worker in savepoints."""

    def __init__(self, port: Savepoints) -> None:
        self._port = port
        self._doing: _Doing | None = None
        self._finishing = False
        self.ordered_now = False
        """While there is an order: it restricts the work of shards."""
        self.answers_now = False
        """While :meth:`step` has an order to answer, which may restrict nothing."""

    # --- questions of the loop --------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """True while no shard may run a bundle."""
        doing = self._doing
        if doing is None or doing.order.phase not in (Phase.HOLD, Phase.SAVE):
            return False
        # Once the cut is ordered, work of a shard after its copy was taken does not change the
        # savepoint.
        return (
            doing.order.phase is Phase.HOLD
            or doing.order.stay
            or bool(doing.order.cut.keys() - doing.copied.keys())
        )

    def runs_at(self, shard: Shard, now_us: int, patient: bool) -> int:
        """When a shard runs a bundle (wall clock): as ever, unless all is to come to rest. Then
        waiting work is finished, and nothing is begun that nothing waits for: otherwise timers
        could keep a pipeline from ever resting."""
        if self._doing is None or self._doing.order.phase in (Phase.SAVE, Phase.SETTLE):
            return shard.admission.runs_at(now_us, patient)
        at, unfinished = shard.admission.runs_at(now_us), shard.unfinished() > 0
        if unfinished and shard.outbox.done:
            return now_us
        return at if unfinished or at > now_us else MAX_TIME

    # --- events -----------------------------------------------------------------------------------

    def ordered(
        self, members: Mapping[str, bytes], served: Mapping[ShardName, Served], now_us: int
    ) -> None:
        """Follow orders that were given or withdrawn."""
        try:
            order = standing_order(members)
        except CorruptionError:
            return  # its author waits in vain, and the pipeline continues
        before = self._doing.order if self._doing else None
        if order == before:
            return
        self._port.withdraw()
        self._doing = None
        if order is not None and order.phase is Phase.FINISH:
            self._finishing = True
        elif order is not None:
            self._doing = _Doing(order)
        self.ordered_now = order is not None and order.phase not in (Phase.FINISH, Phase.SETTLE)
        self.answers_now = self._doing is not None
        for each in served.values():
            self.opened(each.shard, now_us)

    def opened(self, shard: Shard, now_us: int) -> None:
        """Pass the current order to a shard's operator, also when the shard was just opened."""
        shard.operator.rest(self._doing is not None and self._doing.order.phase in _RESTING, now_us)
        shard.operator.catch_up(
            self._finishing or (self._doing is not None and self._doing.order.catch_up)
        )
        if self._finishing:
            shard.operator.finish()

    def saved(self, event: ev.ShardSaved) -> None:
        """Answer with the outcome of a copy."""
        doing = self._doing
        if doing is None or doing.order != event.order:
            return
        if event.problem:
            self._answer({}, event.problem)
        else:
            self._answer({event.shard: event.standing})

    # --- the step ---------------------------------------------------------------------------------

    def step(self, served: Mapping[ShardName, Served], now_us: int) -> None:
        """Answer for the shards that have complied since the last step."""
        doing = self._doing
        if doing is None:
            return
        fresh: dict[str, Standing] = {}
        for name, each in served.items():
            shard = each.shard
            if doing.order.phase is Phase.SAVE:
                self._copy(doing, name, shard)
            elif doing.answered.get(name) != shard.identity.lease and self._does(
                doing.order, each, now_us
            ):
                doing.answered[name] = shard.identity.lease
                fresh[name] = _standing(doing.order, shard, now_us)
        if fresh:
            self._answer(fresh)
        if doing.order.phase is Phase.SAVE:
            doing.copied.update(
                {name: cut for name, cut in doing.order.cut.items() if name not in served}
            )
            if not self.holding:
                self._go_on(served, now_us)

    def _does(self, order: SavepointOrder, served: Served, now_us: int) -> bool:
        shard = served.shard
        if order.phase is Phase.SETTLE:
            # The batch that a sink collects, and acked productions that only a next commit forgets,
            # come to an end at rest.
            is_unfinished = (
                shard.unfinished() > 0 and not shard.operator.collects and not shard.outbox.done
            )
            return served.works and not shard.admission.runnable(now_us) and not is_unfinished
        return shard.unfinished() == 0 if order.phase is Phase.REST else not shard.commits.pending

    def _copy(self, doing: _Doing, name: str, shard: Shard) -> None:
        cut = doing.order.cut.get(name)
        if cut is None or name in doing.copied:
            return
        doing.copied[name] = cut
        as_it_stood = shard.identity.lease.admits(cut.token) and shard.commits.made == cut.commit
        if not as_it_stood or shard.commits.pending:
            self._answer({}, f"shard {name} moved on before it was copied")
            return
        path = self._port.checkpoint_path(doing.order, ShardName(name))
        shard.checkpoint(path)
        self._port.save(doing.order, ShardName(name), cut, path)

    def _go_on(self, served: Mapping[ShardName, Served], now_us: int) -> None:
        for each in served.values():
            each.shard.operator.rest(False, now_us)

    def _answer(self, shards: dict[str, Standing], problem: str = "") -> None:
        assert self._doing is not None
        order = self._doing.order
        self._port.answer(OrderAnswer(order.savepoint, order.number, shards, problem))


def _standing(order: SavepointOrder, shard: Shard, now_us: int) -> Standing:
    identity, unfinished = shard.identity, shard.unfinished()
    if not order.settle or order.phase is not Phase.HOLD:
        return Standing(identity.token, shard.commits.made, unfinished)
    hold = shard.watermark.hold(now_us)
    due = unfinished + shard.admission.runnable(now_us)
    return Standing(
        identity.token,
        shard.commits.made,
        due,
        shard.watermark.input,
        hold.at,
        hold.idle_us,
        dict(shard.meta.counters),
    )
