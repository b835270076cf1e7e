"""Moves that were asked for are made and answered."""

from __future__ import annotations

import pytest

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import AnswerMove
from millwheel.control.master.events import (
    MoveRequested,
    ReshardRequested,
    ShardReleased,
    Tick,
)
from millwheel.control.master.tables.resharding import Split
from millwheel.core.model.ranges import SPACE
from millwheel.core.slices.slots import WIDTH
from millwheel.errors import InvariantError
from tests.unit.control.master.test_state import SECOND, of, owners, served, stored


def test_a_move_is_answered_once_the_table_says_so_and_not_taken_back_by_balancing() -> None:
    state, _ = served("w1", "w2")
    state.handle(Tick(now_us=5 * SECOND))  # finds everything even
    asked = state.handle(MoveRequested(ticket=1, node="traffic", shard="traffic-0", worker="w2"))
    write = stored(asked)
    assert not of(asked, AnswerMove)
    assert state.handle(write) == [AnswerMove(ticket=1)]
    state.handle(
        stored(
            state.handle(ShardReleased(incarnation="w1", shard="traffic-0", token=1, last_commit=0))
        )
    )
    assert state.handle(Tick(now_us=9 * SECOND)) == []
    assert owners(state.tables[0]) == ["w2", "w2"]


@pytest.mark.parametrize(
    ("node", "shard", "worker", "why"),
    [
        ("none", "traffic-0", "w2", "there is no node none; there are traffic"),
        (
            "traffic",
            "traffic-9",
            "w2",
            "traffic has no shard traffic-9; it has traffic-0, traffic-1",
        ),
        (
            "traffic",
            "traffic-0",
            "w9",
            "w9 is not a worker that can take shards; these can: w1, w2",
        ),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_the_reason(
    node: str, shard: str, worker: str, why: str
) -> None:
    state, _ = served("w1", "w2")
    effects = state.handle(MoveRequested(ticket=3, node=node, shard=shard, worker=worker))
    assert effects == [AnswerMove(ticket=3, refusal=why)]


def test_a_move_to_the_owner_itself_is_done_already() -> None:
    state, _ = served("w1", "w2")
    effects = state.handle(MoveRequested(ticket=3, node="traffic", shard="traffic-0", worker="w1"))
    assert effects == [AnswerMove(ticket=3)]


def test_a_second_move_of_the_same_shard_is_refused_while_the_first_is_on_its_way() -> None:
    state, _ = served("w1", "w2", "w3")
    state.handle(
        stored(
            state.handle(MoveRequested(ticket=1, node="traffic", shard="traffic-0", worker="w2"))
        )
    )
    (answer,) = state.handle(
        MoveRequested(ticket=2, node="traffic", shard="traffic-0", worker="w3")
    )
    assert answer == AnswerMove(ticket=2, refusal="traffic-0 is on its way to w2 already")


def test_a_split_of_slices_that_was_asked_for_is_at_the_edge_of_a_slot_and_answered_once() -> None:
    state, _ = served("w1", "w2", grain=WIDTH)
    write = stored(
        state.handle(
            ReshardRequested(ticket=4, resharding=Split("traffic", "traffic-0", 9 * WIDTH + 5))
        )
    )
    assert [entry.split_at for entry in write.table.shards] == [9 * WIDTH, 0]
    assert state.handle(write) == [AnswerMove(ticket=4)]
    (answer,) = state.handle(
        ReshardRequested(ticket=5, resharding=Split("traffic", "traffic-1", SPACE - 5))
    )
    assert isinstance(answer, AnswerMove)
    assert f"upper half begins at {SPACE - WIDTH:016x}" in answer.refusal
    assert state.handle(Tick(now_us=9 * SECOND)) == []


# config.py


@pytest.mark.parametrize("name", ["expected_workers", "moves_at_once"])
def test_a_master_that_expects_nobody_or_moves_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvariantError, match=f"{name} is 0, must be positive"):
        MasterConfig(**{"nodes": (), "expected_workers": 1, name: 0})  # type: ignore[arg-type]
