from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.expressions.language import compile_expression
from millwheel.core.model.records import Record
from millwheel.core.pipeline.work import TopSpec
from millwheel.core.rows.ranking import Ranking
from millwheel.core.windows.panes import retracted
from millwheel.errors import RecordError

ROW = st.fixed_dictionaries(
    {
        "n": st.integers(0, 3),
        "v": st.sampled_from(["x", "y", 1, 1.0]),
        "o": st.sampled_from([None, 0, 1]),
        "f": st.sampled_from([0.0, -0.0, 0.5]),
        "at": st.integers(0, 4),
    }
)
SPECS = [
    TopSpec(),
    TopSpec(latest=True),
    TopSpec(("n desc",), 2),
    TopSpec(("f desc", "n"), 2),
    TopSpec(("v", "n desc"), 3, "place"),
    TopSpec(("o desc nulls last", "v"), 3, "place"),
    TopSpec(("o desc nulls first",), 2),
]
encoded = msgspec.json.Encoder(order="deterministic").encode


def ranking(spec: TopSpec) -> Ranking:
    return Ranking(spec, compile_expression)


def record(row: Any) -> Record:
    value = {name: part for name, part in row.items() if name != "__retraction__"}
    return Record("k", row, value["at"], "s")


def wanted(spec: TopSpec, rows: list[dict[str, Any]], timed: bool = True) -> list[Any]:
    """Sorted once, by each order after the other, from the last to the first."""
    rows = sorted(rows, key=lambda row: msgspec.msgpack.encode(row, order="deterministic"))
    if timed:
        rows.sort(key=lambda row: row["at"], reverse=spec.latest)
    for text in reversed(spec.by):
        text, _, nulls = text.partition(" nulls ")
        name = text.removesuffix(" desc")
        rows.sort(
            key=lambda row: (
                isinstance(row[name], str),
                0 if row[name] is None else row[name],
                isinstance(row[name], float),
            ),
            reverse=text != name,
        )
        if nulls:
            rows.sort(key=lambda row: (row[name] is None) == (nulls == "last"))
    return rows[: spec.k]


@pytest.mark.parametrize("spec", SPECS)
@given(bundles=st.lists(st.lists(ROW, min_size=1, max_size=4), max_size=4))
def test_the_first_rows_are_those_of_all_records_sorted(
    spec: TopSpec, bundles: list[list[dict[str, Any]]]
) -> None:
    order = ranking(spec)
    kept: list[Any] = []
    folded: Counter[bytes] = Counter()
    for rows in bundles:
        after = order.added(kept, [record(row) for row in rows])
        gone, new = order.differences(kept, after)
        assert not {encoded(row) for row in gone} & {encoded(row) for row, _ in new}
        folded.subtract(map(encoded, gone))
        folded.update(encoded(row) for row, _ in new)
        kept = after
    rows = wanted(spec, [row for rows in bundles for row in rows])
    assert [entry[2] for entry in kept] == rows
    placed = [{**row, "place": n} if spec.rank else row for n, row in enumerate(rows, 1)]
    assert +folded == Counter(map(encoded, placed))
    assert -folded == Counter()


@pytest.mark.parametrize("spec", SPECS[2:])
@given(
    rows=st.lists(ROW, max_size=8),
    back=st.sets(st.integers(0, 7)),
    mixed=st.randoms(use_true_random=False),
)
def test_a_row_may_be_taken_back_before_it_comes(
    spec: TopSpec, rows: list[dict[str, Any]], back: set[int], mixed: Any
) -> None:
    order = ranking(spec)
    changes = [*rows, *(retracted(row) for n, row in enumerate(rows) if n in back)]
    mixed.shuffle(changes)
    kept: list[Any] = []
    owed: list[Any] = []
    for change in changes:
        kept, owed = order.changed(kept, owed, [record(change)])
    left = [row for n, row in enumerate(rows) if n not in back]
    assert owed == []
    assert [entry[2] for entry in kept][: spec.k] == wanted(spec, left, timed=False)


def test_equal_content_changes_nothing_whatever_the_order_of_its_fields() -> None:
    order = ranking(TopSpec(latest=True))
    before = order.added([], [Record("k", {"a": 1, "b": 2}, 5, "s")])
    after = order.added(before, [Record("k", {"b": 2, "a": 1}, 6, "s")])
    assert after[0][1] == 6
    assert order.differences(before, after) == ([], [])
    kept, owed = order.changed(before, [], [Record("k", retracted({"b": 2, "a": 1}), 7, "s")])
    assert (kept, owed) == ([], [])


def test_what_has_no_place_in_an_order_is_said() -> None:
    order = ranking(TopSpec(("n",), 2, "place"))
    with pytest.raises(RecordError, match="top of field 'n' needs a number or text, not NoneType"):
        order.added([], [Record("k", {"n": None}, 5, "s")])
    with pytest.raises(RecordError, match="no field 'n'"):
        order.added([], [Record("k", {"m": 1}, 5, "s")])
    with pytest.raises(RecordError, match="adds the field 'place' to maps only, not to int"):
        ranking(TopSpec(("1",), 2, "place")).added([], [Record("k", 7, 5, "s")])
