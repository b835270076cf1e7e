"""The row of a key of a table, against sorting all that came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.language import compile_expression
from millwheel.core.rows.latest import DELETED_FIELD, LatestRow, Located, deletion
from millwheel.errors import RecordError

DELETES = compile_expression("op == 'd'").evaluate
records = st.builds(
    lambda at, number, channel, op: Located("k", {"op": op}, at, "s", channel, number),
    st.integers(0, 3),
    st.integers(0, 99),
    st.sampled_from(["a", "b"]),
    st.sampled_from("duv"),
)


def position(record: Located) -> tuple[int, str, int]:
    return record.timestamp, record.channel, record.number


@given(
    st.lists(
        st.lists(records, min_size=1, max_size=4),
        max_size=6,
    ).filter(
        lambda batches: (
            len({position(each) for batch in batches for each in batch}) == sum(map(len, batches))
        )
    )
)
def test_the_last_by_time_and_place_is_the_row_however_records_come(
    batches: list[list[Located]],
) -> None:
    row, kept, standing = LatestRow(deletion(DELETES)), [], list[Any]()
    for batch in batches:
        after = row.added(kept, batch)
        gone, new = row.differences(kept, after)
        for each in gone:
            standing.remove(each)
        standing += [value for value, _ in new]
        kept = after
    every = [each for batch in batches for each in batch]
    last = max(every, key=position, default=None)
    assert standing == ([] if last is None or last.value["op"] == "d" else [last.value])


def test_a_row_that_comes_again_says_nothing_and_counts_from_then_on() -> None:
    row = LatestRow(deletion(None))
    one = row.added([], [Located("k", {"v": 1, "w": 2}, 1, "s", "a", 1)])
    again = row.added(one, [Located("k", {"w": 2, "v": 1}, 5, "s", "a", 2)])
    assert row.differences(one, again) == ([], [])
    assert row.added(again, [Located("k", {"v": 3}, 3, "s", "a", 3)]) is again


def test_a_change_has_the_time_of_its_record() -> None:
    row = LatestRow(deletion(None))
    one = row.added([], [Located("k", {"v": 1}, 1, "s", "a", 1)])
    two, owed = row.changed(one, [], [Located("k", {"v": 2}, 7, "s", "a", 2)])
    assert (row.differences(one, two), owed) == (([{"v": 1}], [({"v": 2}, 7)]), [])


def test_each_record_is_judged_however_they_come_together() -> None:
    bad = Located("k", {}, 1, "s", "a", 1)
    with pytest.raises(RecordError, match="no field 'op'"):
        LatestRow(deletion(DELETES)).added([], [bad, Located("k", {"op": "u"}, 2, "s", "a", 2)])


def test_a_message_without_a_value_deletes_whatever_the_condition_reads() -> None:
    deletes = deletion(DELETES)
    assert deletes({"id": 1, DELETED_FIELD: True})
    assert not deletes({"op": "u", DELETED_FIELD: False})
    assert not deletion(None)({"id": 1})
