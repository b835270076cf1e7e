"""Deliberate mistakes in runs that end once they have caught up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from millwheel.control.savepoints import state
from millwheel.control.savepoints.orders import OrderAnswer, Standing
from millwheel.core.formats.store_layout import Position
from millwheel.engine.workers.loop.savepoint import SavepointPart
from millwheel.engine.workers.shard import shard
from millwheel.engine.workers.sources import partitions, source
from tests.sim import days
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20, days=True)
@contextmanager
def caught_up_whatever_is_on_its_way() -> Iterator[None]:
    """Shards say that they are at rest, whatever others have yet to apply or they have yet to
    commit."""
    with (
        replaced(shard.Shard, "unfinished", lambda self: 0),
        replaced(
            SavepointPart,
            "runs_at",
            lambda self, shard, now_us, patient: shard.admission.runs_at(now_us),
        ),
        replaced(SavepointPart, "holding", property(lambda self: False)),
    ):
        yield


@mistake(within=5, faults="network slow", workload="windows", days=True, first=21)
def caught_up_while_a_watermark_is_on_its_way() -> Context:
    """All stand still, so nothing more can come: windows that are complete stay open until
    tomorrow."""
    return replaced(days, "has_caught_up", lambda *_: True)


@mistake(within=5, days=True, first=4)
def a_silent_moment_is_the_end() -> Context:
    """A partition that has nothing for the moment has caught up, wherever it ended when the run
    began."""
    right = source._find_end

    def wrong(parts: Any, part: Any, reader: Any, read: Any, caught_up: bool) -> None:
        right(parts, part, reader, read, caught_up)
        part.certain = part.certain or caught_up

    return replaced(source, "_find_end", wrong)


@mistake(within=10, days=True)
def the_next_run_begins_with_the_input() -> Context:
    """A later run reads what is there from the beginning."""
    return _opened_at(lambda part: 0)


@mistake(within=10, days=True)
def the_next_run_begins_after_the_input() -> Context:
    """A later run takes all that is there when it begins for read."""
    return _opened_at(
        lambda part: part.partition.version[0] if part.position and part.partition.version else None
    )


def _opened_at(position_of: Any) -> Context:
    right = partitions.open_part  # type: ignore[attr-defined]

    def wrong(*given: Any) -> Any:
        part = right(*given)
        position = position_of(part)
        if position is not None:
            part.position, part.committed = (
                position,
                Position(position, part.max_timestamp, False, part.note),
            )
        return part

    return replaced(partitions, "open_part", wrong)


@mistake(within=5, days=True)
def the_run_reads_what_came_after_it_began() -> Context:
    """Readers are not told where to stop."""
    return replaced(days.FollowedReader, "stop_at", lambda self, end: None)


@mistake(within=5, faults="move split kill", days=True, first=20010)
def the_last_answer_in_the_list_counts() -> Context:
    """Whoever asks believes a former owner that has given its shard away, if its answer is listed
    last."""

    def latest(answers: Sequence[OrderAnswer]) -> dict[str, Standing]:
        return {shard: standing for answer in answers for shard, standing in answer.shards.items()}

    return replaced(state, "_latest", latest)


def _may_run(shard: Any, now_us: int) -> bool:
    return bool(shard.admission.runnable(now_us))
