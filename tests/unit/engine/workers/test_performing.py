from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from millwheel.control.savepoints.orders import OrderAnswer, Phase, SavepointOrder, Standing
from millwheel.core.model.names import ShardName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.engine.workers import effects as ef
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.performing import Performing
from millwheel.engine.workers.ports import WorkerPorts
from millwheel.errors import InvariantError


class Recorder:
    """All ports: what was called, in order. ``inline`` says that a group is written while the loop
    waits."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.inline = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        self.calls.append("write_now")
        return 7 if self.inline else None


@pytest.fixture
def outside() -> Recorder:
    return Recorder()


@pytest.fixture
def performing(outside: Recorder) -> Performing:
    return Performing(WorkerPorts(*(outside for _ in WorkerPorts.__dataclass_fields__)))  # type: ignore[arg-type]


def group(last: int, inline: bool = False) -> ef.CommitGroup:
    return ef.CommitGroup([b"entry"], [], {"n-0": last}, inline)


def ack(rests_on: int) -> ef.Ready:
    return ef.Ready(acks=[ef.Ack("route", "up", "n-0", 1, 0, rests_on)])


def send(rests_on: int) -> ef.Ready:
    delivery = Send("n-0", "m", "m-0", 1, 0, Batch("out", [1], [1], ["k"], [b"v"]), rests_on)
    return ef.Ready(sends=[ef.Outgoing("n-0", "there", 1, delivery)])


@pytest.mark.parametrize("ready", [ack, send])
def test_what_rests_on_a_commit_leaves_only_when_the_journal_has_it(
    performing: Performing, outside: Recorder, ready: Any
) -> None:
    performing.perform(ef.Ready(group=group(4)))
    with pytest.raises(InvariantError, match="before its commit 4 is durable; durable is 0"):
        performing.perform(ready(4))
    performing.written()
    performing.perform(ready(4))
    with pytest.raises(InvariantError, match="commit 5 is durable; durable is 4"):
        performing.perform(ready(5))


def test_groups_become_durable_in_the_order_in_which_they_were_written(
    performing: Performing,
) -> None:
    performing.perform(ef.Ready(group=group(4)))
    performing.perform(ef.Ready(group=group(5)))
    performing.written()
    with pytest.raises(InvariantError):
        performing.perform(ack(5))


def test_a_group_that_somebody_waits_for_may_be_durable_at_once(
    performing: Performing, outside: Recorder
) -> None:
    outside.inline = True
    assert performing.perform(ef.Ready(group=group(4, inline=True))) == 7
    performing.perform(ack(4))
    assert performing.perform(ef.Ready(group=group(5))) is None, (
        "others are before it, or nobody waits"
    )


def test_what_rests_on_nothing_leaves_at_once_and_what_was_recovered_is_durable(
    performing: Performing, outside: Recorder
) -> None:
    performing.perform(send(0))
    performing.opened("n-0", 9)
    performing.perform(ack(9))
    assert outside.calls == ["send", "flush", "ack", "flush"]


def test_messages_leave_before_the_loop_waits_for_the_disk(
    performing: Performing, outside: Recorder
) -> None:
    performing.perform(ef.Ready(send(0).sends, group=group(1, inline=True)))
    assert outside.calls == ["send", "flush", "write_now", "submit"]


def test_messages_that_are_held_leave_once_with_what_the_group_lets_go(
    performing: Performing, outside: Recorder
) -> None:
    outside.inline = True
    performing.perform(ef.Ready(send(0).sends, group=group(1, inline=True)), holds=True)
    assert outside.calls == ["send", "write_now"]
    performing.flush()
    performing.flush()
    assert outside.calls == ["send", "write_now", "flush"]


def test_messages_are_not_held_for_a_group_that_another_thread_writes(
    performing: Performing, outside: Recorder
) -> None:
    performing.perform(ef.Ready(send(0).sends, group=group(1)), holds=True)
    assert outside.calls == ["send", "flush", "submit"]


ENTRY, ORDER, HERE = (
    ShardEntry("n-0", tile(1)[0], "w0", 1),
    SavepointOrder("s", 1, Phase.SAVE),
    Standing(1, 4),
)
REPLIES: list[Any] = []
EFFECTS: list[tuple[ef.Effect, str]] = [
    (ef.Recover("n", ENTRY), "recover"),
    (ef.Follow(ENTRY), "follow"),
    (ef.Unfollow("n-0"), "drop"),
    (ef.PublishSnapshot("n-0", 1, 4, "path"), "publish"),
    (ef.DeleteSegment(3), "delete_segment"),
    (ef.Report({}), "report"),
    (ef.ForgetReports("n-0"), "forget"),
    (ef.Release("n-0", 1, 4), "released"),
    (ef.ReportLoad(()), "load"),
    (ef.AnswerOrder(OrderAnswer("s", 1, {})), "answer"),
    (ef.WithdrawAnswers(), "withdraw"),
    (ef.SaveCopy(ORDER, "n-0", HERE, "path"), "save"),
    (ef.AnswerQueries(REPLIES.append, (), {}), ""),
]


def test_every_effect_reaches_its_port(performing: Performing, outside: Recorder) -> None:
    performing.opened("n-0", 4)
    performing.perform(ef.Ready(others=[effect for effect, _ in EFFECTS]))
    assert outside.calls == [*(port for _, port in EFFECTS if port), "flush"]
    assert REPLIES.pop() == ()  # a query has its own way back
    assert {type(effect) for effect, _ in EFFECTS} == set(get_args(ef.Effect))


@pytest.mark.parametrize(
    ("effect", "what"),
    [
        (ef.PublishSnapshot("n-0", 1, 4, "path"), "publishes"),
        (ef.Release("n-0", 1, 4), "releases"),
        (ef.SaveCopy(ORDER, "n-0", HERE, "path"), "saves"),
    ],
)
def test_nothing_that_outlives_the_worker_has_a_commit_that_is_not_durable(
    performing: Performing, outside: Recorder, effect: ef.Effect, what: str
) -> None:
    performing.opened("n-0", 3)
    with pytest.raises(
        InvariantError, match=f"{what} before its commit 4 is durable; durable is 3"
    ):
        performing.perform(ef.Ready(others=[effect]))
    assert not outside.calls


def test_an_answer_that_rests_on_a_commit_that_is_not_durable_ends_the_worker(
    performing: Performing,
) -> None:
    with pytest.raises(InvariantError, match="answers before its commit 7"):
        performing.perform(
            ef.Ready(others=[ef.AnswerQueries(REPLIES.append, (), {ShardName("n-0"): 7})])
        )
    assert not REPLIES
