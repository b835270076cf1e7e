from __future__ import annotations

import pytest

from millwheel.control.savepoints.orders import OrderAnswer, Phase, SavepointOrder, Standing
from millwheel.control.savepoints.state import SavepointRequest, Taking
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import UnavailableError

SECOND = 1_000_000


def tables(token: int = 1, owner: str = "w0") -> dict[str, RangeTable]:
    entries = (ShardEntry(f"a-{n}", keys, owner, token) for n, keys in enumerate(tile(2)))
    return {"a": RangeTable("a", tuple(entries), 1)}


def said(order: SavepointOrder | None, problem: str = "", **shards: Standing) -> list[OrderAnswer]:
    assert order is not None
    named = {name.replace("_", "-"): standing for name, standing in shards.items()}
    return [OrderAnswer(order.savepoint, order.number, named, problem)]


def at_rest(token: int = 1) -> dict[str, Standing]:
    return {"a_0": Standing(token, 4), "a_1": Standing(token, 9)}


def taking(patience_us: int = 60 * SECOND) -> Taking:
    return Taking(SavepointRequest("s1", "/saved", ("a",), False, patience_us))


def held() -> Taking:
    made = taking()
    made.step(0, {}, [])
    made.step(1, tables(), said(made.order, **at_rest()))
    return made


def test_all_rest_then_all_hold_still_then_all_are_copied() -> None:
    made = taking()
    rest = made.step(0, {}, [])
    assert rest is not None
    assert rest.phase is Phase.REST
    assert made.step(1, tables(), said(rest, a_0=Standing(1, 4))) is None
    hold = made.step(2, tables(), said(rest, **at_rest()))
    assert hold is not None
    assert (hold.phase, hold.number) == (Phase.HOLD, 2)
    save = made.step(3, tables(), said(hold, **at_rest()))
    assert save is not None
    assert (save.phase, save.cut, save.folder) == (
        Phase.SAVE,
        {"a-0": Standing(1, 4), "a-1": Standing(1, 9)},
        "/saved",
    )
    assert made.step(4, tables(), said(save, a_0=Standing(1, 4))) is None
    assert not made.done
    assert made.step(9, tables(), said(save, **at_rest())) is None
    assert made.done
    assert made.cut == save.cut
    assert made.held_us == 7


def test_sources_end_where_all_stand_still_with_nothing_on_its_way() -> None:
    made = Taking(SavepointRequest("f1", "", ("a",), finish=True))
    rest = made.step(0, {}, [])
    assert rest is not None
    assert (rest.catch_up, rest.settle) == (True, False)
    hold = made.step(1, tables(), said(rest, **at_rest()))
    again = made.step(2, tables(), said(hold, a_0=Standing(1, 4), a_1=Standing(1, 9, unfinished=1)))
    assert again is not None
    assert (again.phase, made.done) == (Phase.REST, False)
    hold = made.step(3, tables(), said(again, **at_rest()))
    finish = made.step(4, tables(), said(hold, **at_rest()))
    assert finish is not None
    assert (finish.phase, made.done) == (Phase.FINISH, True)


def test_what_is_still_on_its_way_when_all_hold_still_is_let_through_first() -> None:
    made = held()
    again = made.step(
        2, tables(), said(made.order, a_0=Standing(1, 4), a_1=Standing(1, 9, unfinished=2))
    )
    assert again is not None
    assert again.phase is Phase.REST


def test_the_word_of_an_owner_that_was_replaced_does_not_count() -> None:
    made = held()
    assert made.step(2, tables(token=2), said(made.order, **at_rest(token=1))) is None
    assert made.step(3, tables(token=2), said(made.order, **at_rest(token=2))) is not None


def test_a_shard_that_changes_its_owner_before_it_is_copied_begins_it_all_anew() -> None:
    made = held()
    made.step(2, tables(), said(made.order, **at_rest()))
    again = made.step(3, tables(token=2), [])
    assert again is not None
    assert again.phase is Phase.REST


def test_copies_that_fail_are_tried_again_and_then_given_up_with_the_reason() -> None:
    made = held()

    def fail() -> None:
        for now_us in range(2, 50):
            copying = made.order is not None and made.order.phase is Phase.SAVE
            answers = (
                said(made.order, "the disk is full") if copying else said(made.order, **at_rest())
            )
            made.step(now_us, tables(), answers)

    with pytest.raises(UnavailableError, match="the disk is full"):
        fail()


def test_a_pipeline_that_never_rests_is_let_go_and_who_was_at_work_is_said() -> None:
    made = taking(patience_us=SECOND)
    made.step(0, {}, [])
    with pytest.raises(UnavailableError, match=r"within 1 s.*working: a-1\. "):
        made.step(SECOND + 1, tables(), said(made.order, a_0=Standing(1, 4)))


def test_a_pipeline_has_caught_up_once_all_stand_still_and_no_watermark_is_on_its_way() -> None:
    answers = iter([False, True])
    made = Taking(
        SavepointRequest("c1", "", ("a",), caught_up=lambda tables, standing: next(answers))
    )
    phases = []
    order = made.step(0, {}, [])
    while order is not None:
        phases.append(order.phase)
        assert order.catch_up
        assert order.settle
        order = made.step(1, tables(), said(order, **at_rest()))
    assert phases == [Phase.SETTLE, Phase.REST, Phase.HOLD] * 2
    assert made.done
    assert made.stands == {"a-0": Standing(1, 4), "a-1": Standing(1, 9)}


@pytest.mark.parametrize("former_first", [False, True])
def test_the_answer_of_an_owner_that_gave_its_shard_away_does_not_hide_that_of_the_next_one(
    former_first: bool,
) -> None:
    made = taking()
    rest = made.step(0, {}, [])
    former, latest = said(rest, **at_rest(token=1)), said(rest, **at_rest(token=2))
    order = made.step(1, tables(token=2), former + latest if former_first else latest + former)
    assert order is not None
    assert order.phase is Phase.HOLD
