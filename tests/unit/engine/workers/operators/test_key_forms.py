"""Keys go on in rows where only small bundles come for them, and where columns hold much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state import columns_to_rows
from millwheel.core.columns.state.change_logs import LastingGroups
from millwheel.engine.workers.operators import key_forms
from millwheel.engine.workers.operators.key_forms import FormChoice
from tests.unit.core.columns.state.test_change_logs import forever
from tests.unit.core.columns.state.test_windows import Row, batch_of


def held(keys: Sequence[int]) -> LastingGroups:
    """One group for each key, the later the greater it is."""
    plan = forever()
    groups = LastingGroups()
    for key in keys:
        groups.add(plan.group(batch_of([Row(key, "x", 0.5, 1, key)])))
    return groups


def keys_of_parts(choice: FormChoice, count: int) -> list[list[int]]:
    return [
        sorted(key for each in segments for key in each.groups[KEY])
        for segments in choice.leave(count)
    ]


def test_the_first_large_bundle_brings_columns_and_many_small_ones_end_them() -> None:
    groups = held([])
    choice = FormChoice(groups, 20, 1 << 20, lambda: False)
    choice.choose(5)
    assert choice.in_rows
    choice.choose(20)
    assert not choice.in_rows
    groups.add(held([1]).segments()[0].groups)
    for _ in range(key_forms._SMALL_BUNDLES):
        choice.choose(0)  # nobody has sent anything
        choice.choose(5)
        assert not choice.in_rows
    choice.choose(5)
    assert choice.in_rows
    assert keys_of_parts(choice, 5) == [[1]]
    assert not groups
    choice.choose(20)
    assert not choice.in_rows


def test_small_bundles_stay_in_rows_where_columns_hold_nothing() -> None:
    choice = FormChoice(held([]), 20, 1 << 20, lambda: False)
    choice.choose(20)
    choice.choose(19)
    assert choice.in_rows


def test_what_has_been_still_for_longest_leaves_and_no_more_than_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 2)
    groups = held(range(12))
    choice = FormChoice(groups, 0, groups.size() - 1, lambda: False)
    assert not choice.room
    choice.choose(3)
    gone = keys_of_parts(choice, 3)
    assert 3 < sum(map(len, gone)) < 8
    while choice.leaving.begun:
        gone += keys_of_parts(choice, 0)
    left = sorted(key for each in gone for key in each)
    assert left == list(range(len(left)))
    assert 5 <= len(left) <= 7
    assert keys_of_parts(choice, 3) == []


def test_the_store_is_asked_now_and_then_whether_rows_have_any_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_forms, "_LOOKS", 2)
    answers = [True, False]
    choice = FormChoice(held([1]), 0, 1 << 20, lambda: answers.pop(0))
    assert choice.some_in_rows
    for _ in range(3):
        assert choice.some_in_rows
        choice.choose(1)
    assert not choice.some_in_rows
    assert not answers
