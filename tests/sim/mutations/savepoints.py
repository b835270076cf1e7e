"""Deliberate mistakes in the taking of savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from millwheel.control.savepoints.orders import Phase, Standing
from millwheel.control.savepoints.state import Taking
from millwheel.engine.workers.loop.savepoint import SavepointPart
from millwheel.engine.workers.shard import shard
from millwheel.engine.workers.sources.source_parts import SourceEnd
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, faults="none", savepoint=True)
def savepoint_of_a_moving_pipeline() -> Context:
    """Shards are copied one after the other as they are at the moment, while the pipeline goes
    on."""
    right = SavepointPart._copy

    def copy_as_it_is(self: SavepointPart, doing: Any, name: str, shard: Any) -> None:
        if not shard.commits.pending:
            doing.order.cut[name] = Standing(shard.identity.token, shard.commits.made)
            right(self, doing, name, shard)

    def believe(self: Taking, now_us: int, tables: Any, said: Any, problem: str) -> None:
        assert self.order is not None
        if self.order.cut.keys() <= said.keys():
            self.order.cut.update(said)
            self.done = True

    return _together(
        replaced(SavepointPart, "holding", property(lambda self: False)),
        replaced(SavepointPart, "opened", lambda self, shard, now_us: None),
        replaced(
            SavepointPart,
            "runs_at",
            lambda self, shard, now_us, patient: shard.admission.runs_at(now_us),
        ),
        replaced(SavepointPart, "_does", lambda self, order, *_: True),
        replaced(shard.Shard, "unfinished", lambda self: 0),
        replaced(SavepointPart, "_copy", copy_as_it_is),
        replaced(Taking, "_after_save", believe),
    )


@mistake(within=10, savepoint=True)
def savepoint_whatever_is_on_its_way() -> Context:
    """A savepoint is taken although records are on their way, and those who start from one drop
    them."""
    return _together(
        replaced(shard.Shard, "unfinished", lambda self: 0),
        replaced(shard, "read_productions", lambda store, fanout: []),
    )


@mistake(within=60, faults="kill kill-in-a-call", finish=True, first=6)
def sources_end_before_what_they_read_is_applied() -> Context:
    """A source that is told to end says so at once."""
    return _together(
        replaced(SourceEnd, "due", lambda self, applied: self.finishing and not self.ended),
        replaced(Taking, "step", _finish_at_once),
    )


def _finish_at_once(self: Taking, now_us: int, tables: Any, answers: Any) -> Any:
    self.done = True
    return self._next(Phase.FINISH, now_us)


@contextmanager
def _together(*contexts: Context) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
