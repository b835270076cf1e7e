"""Pairs that are made of columns are those that are made of records one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.columns.pairs import INPUT, VALUE, JoinWindows, Pairing, decoded, encoded
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.keys import key_from_bytes
from millwheel.core.pipeline.joins import combinations
from millwheel.core.pipeline.work import JoinKind
from millwheel.core.windows.windows import Tumbling, Window

FIELDS = {"ad": "int", "who": "str", "at": "int", "cost": "float"}
KEYS = [("ad",), ("who",), ("ad", "who")]
Row = dict[str, Any]

rows = st.lists(
    st.fixed_dictionaries(
        {
            "ad": st.integers(0, 2),
            "who": st.sampled_from(["", "ä", "some longer name than others"]),
            "at": st.integers(-25, 25),
            "cost": st.sampled_from([0.5, -0.0, 1e300]),
        }
    ),
    max_size=12,
)


some_rows = rows.filter(bool)


def pairing(
    kind: JoinKind = JoinKind.INNER, key: tuple[str, ...] = ("ad",), declared: bool = True
) -> Pairing:
    fields = FIELDS if declared else {}
    return Pairing(("shown", "clicked"), (fields, fields), key, kind, Tumbling(10, 3))


def batch(stream: str, values: Sequence[Row], key: tuple[str, ...] = ("ad",)) -> ColumnBatch:
    schema = {"ad": pl.Int64, "who": pl.String, "at": pl.Int64, "cost": pl.Float64}
    frame = pl.DataFrame({name: [row[name] for row in values] for name in FIELDS}, schema)
    stamps = frame["at"].to_numpy()
    return ColumnBatch(
        stream, np.arange(len(values)), stamps, key_column([frame[name] for name in key]), frame
    )


def taken(
    plan: Pairing, shown: Sequence[Row], clicked: Sequence[Row], cut: int = 3
) -> list[pl.DataFrame]:
    frames = []
    for stream, values in (("shown", shown), ("clicked", clicked)):
        for part in (values[:cut], values[cut:]):
            if part:
                frame = plan.taken(batch(stream, part, plan.key_names))
                assert frame is not None
                frames.append(frame)
    return frames


def expected(plan: Pairing, shown: Sequence[Row], clicked: Sequence[Row]) -> list[Row]:
    found = []
    groups = sorted(
        {
            (plan.window.assign(row["at"])[0], tuple(row[k] for k in plan.key_names))
            for row in [*shown, *clicked]
        },
        key=repr,
    )
    for window, key in groups:
        of = [
            [
                row
                for row in values
                if plan.window.assign(row["at"])[0] == window and of_key(row, plan) == key
            ]
            for values in (shown, clicked)
        ]
        for left, right in combinations(of, plan.kind):
            head = dict(zip(plan.key_names, key, strict=True))
            bounds = {"window_start": window.start, "window_end": window.end}
            found.append({**head, **bounds, "shown": left, "clicked": right})
    return found


def of_key(row: Row, plan: Pairing) -> tuple[Any, ...]:
    return tuple(row[name] for name in plan.key_names)


def by_window(found: Sequence[Row], plan: Pairing) -> list[tuple[str, list[Row]]]:
    def head(row: Row) -> str:
        return repr((*of_key(row, plan), row["window_start"]))

    return [(name, list(group)) for name, group in groupby(sorted(found, key=head), head)]


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.OUTER])
@pytest.mark.parametrize("key", KEYS, ids=str)
@given(shown=rows, clicked=rows, cut=st.integers(0, 12), together=st.booleans())
@settings(max_examples=20, deadline=None)
def test_pairs_of_columns_are_those_of_records(
    kind: JoinKind,
    key: tuple[str, ...],
    shown: list[Row],
    clicked: list[Row],
    cut: int,
    together: bool,
) -> None:
    """Those of a key and window in the same order, too."""
    plan = pairing(kind, key)
    frames = taken(plan, shown, clicked, cut)
    if not frames:
        return
    found = plan.pairs([plan.merge(frames)] if together else frames)
    assert found is not None
    assert found["window_end"].is_sorted()
    assert by_window(found.to_dicts(), plan) == by_window(expected(plan, shown, clicked), plan)
    if found.height:
        parts = [found[name].to_list() for name in key]
        assert key_list(plan.keys_of(found)) == (
            list(zip(*parts, strict=True)) if len(key) > 1 else parts[0]
        )


@given(shown=rows, clicked=rows, cut=st.integers(0, 12))
@settings(max_examples=20, deadline=None)
def test_records_keep_their_order_and_their_values_when_they_are_encoded(
    shown: list[Row], clicked: list[Row], cut: int
) -> None:
    """Also where some have been before."""
    plan = pairing(key=("ad", "who"))
    frames = taken(plan, shown, clicked)
    if not frames:
        return
    mixed = [
        encoded(frame) if index == cut % len(frames) else frame
        for index, frame in enumerate(frames)
    ]
    whole = plan.merge(mixed)
    assert plan.pairs([whole]) is None
    got = [
        (number, key_from_bytes(key), list(decode_value(value).items()))
        for number, key, value in whole.select(INPUT, KEY, VALUE).iter_rows()
    ]
    assert got == [
        (number, of_key(row, plan), [(name, row[name]) for name in FIELDS])
        for number, values in enumerate((shown, clicked))
        for row in values
    ]
    assert whole.select(START, END).equals(
        plan.merge(list(map(encoded, frames))).select(START, END)
    )


def test_columns_of_other_types_are_encoded() -> None:
    plan = pairing()
    row = {"ad": 1, "who": "x", "at": 5, "cost": 1.0}
    one = batch("shown", [row])
    other = ColumnBatch(
        "shown", one.seqs, one.timestamps, one.keys, one.frame.with_columns(more=pl.lit(1))
    )
    frames = [frame for frame in map(plan.taken, (one, other)) if frame is not None]
    assert len(frames) == 2
    values = [decode_value(value) for value in plan.merge(frames)[VALUE]]
    assert values == [row, {**row, "more": 1}]


def test_what_columns_cannot_hold_is_not_taken() -> None:
    row = {"ad": 1, "who": "x", "at": 2**62, "cost": 1.0}
    assert pairing().taken(batch("shown", [row])) is None  # the bounds of its window
    near = batch("shown", [{**row, "at": 1}], ("ad", "who"))
    assert pairing(key=("key",)).taken(near) is None  # a key of two parts under one name


def test_what_is_missing_has_the_declared_type_or_is_made_record_by_record() -> None:
    row = {"ad": 1, "who": "x", "at": 5, "cost": 1.0}
    for kind, declared, found in (
        (JoinKind.LEFT, True, 1),
        (JoinKind.INNER, False, 0),
        (JoinKind.LEFT, False, None),
    ):
        plan = pairing(kind, declared=declared)
        made = plan.pairs(taken(plan, [row], []))
        assert (None if made is None else made.height) == found
    plan = pairing(JoinKind.LEFT)
    made = plan.pairs(taken(plan, [row], []))
    assert made is not None
    assert made.schema["clicked"] == made.schema["shown"]


values = st.fixed_dictionaries(
    {
        "ad": st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1)),
        "who": st.one_of(st.none(), st.text(max_size=3)),
        "cost": st.one_of(st.none(), st.integers(0, 3), st.floats()),
        "first": st.one_of(st.none(), st.booleans()),
    },
    optional={"more": st.just([1])},
)


@given(st.lists(values, min_size=1, max_size=4), st.booleans())
@settings(max_examples=200)
def test_encoded_values_are_columns_where_these_encode_to_the_same(
    records: list[Row], declared: bool
) -> None:
    kinds = {"ad": "int", "who": "str", "cost": "float", "first": "bool"}
    data = [encode_value(record) for record in records]
    frame = decoded(data, kinds if declared else {})
    if frame is not None:
        assert [encode_value(record) for record in frame.to_dicts()] == data
        assert {*frame.columns} == {*kinds}


def test_declared_fields_of_nulls_alone_are_columns() -> None:
    data = [encode_value({"ad": None, "cost": 0.5})]
    frame = decoded(data, {"ad": "int", "cost": "float"})
    assert frame is not None
    assert frame.schema == {"ad": pl.Int64, "cost": pl.Float64}
    assert decoded(data, {}) is None


@pytest.mark.parametrize("odd", [{"cost": 1}, {"cost": float("nan")}, {"ad": 2**63}, {"^a$": 1}])
def test_what_no_column_holds_stays_encoded(odd: Row) -> None:
    fields = {"ad": "int", "cost": "float"}
    plain = {"ad": 1, "cost": 0.5}
    assert decoded([encode_value(plain)] * 2, fields) is not None
    assert decoded([encode_value(plain), encode_value({**plain, **odd})], fields) is None
    assert decoded([encode_value({**plain, **odd})], {}) is None or "cost" in odd
    assert decoded([encode_value([1])], {}) is None


@given(some_rows, some_rows, st.integers(1, 40), st.sampled_from([FIELDS, {"ad": "int"}]))
def test_parts_of_the_pairs_of_a_window_are_all_of_them_in_order(
    shown: list[Row], clicked: list[Row], part: int, declared: dict[str, str]
) -> None:
    plan = Pairing(
        ("shown", "clicked"), (declared, declared), ("ad",), JoinKind.INNER, Tumbling(10, 3)
    )
    shown, clicked = (
        [{name: row[name] for name in FIELDS} for row in values] for values in (shown, clicked)
    )
    sides = plan.sides_of([list(map(encode_value, values)) for values in (shown, clicked)])
    assert sides is not None
    total, found = len(shown) * len(clicked), []
    for start in range(0, total, part):
        numbers = range(start, min(start + part, total))
        some = plan.some_of(1, Window(3, 13), sides, numbers)
        assert some is not None
        found += some.to_dicts()
    bounds = {"ad": 1, "window_start": 3, "window_end": 13}
    assert found == [
        {**bounds, "shown": one, "clicked": other} for one in shown for other in clicked
    ]


def test_keys_that_columns_of_results_do_not_hold_have_none() -> None:
    plan = pairing()
    row = encode_value({"ad": 1, "who": "x", "at": 1, "cost": 0.5})
    sides = plan.sides_of([[row], [row]])
    assert sides is not None
    for key in (None, True, 2**63, (1, 2), 0.5):
        assert plan.some_of(key, Window(3, 13), sides, range(1)) is None
    assert plan.sides_of([[row], [encode_value(7)]]) is None


@pytest.mark.parametrize(
    ("most", "waiting", "left"),
    [
        (10**9, set(), None),
        (10**9, {4}, None),
        (10**9, {3, 4}, {3}),
        (6_000, set(), {1}),
        (6_000, {1, 3}, {1, 3}),
        (300, set(), {1, 2}),
    ],
)
def test_keys_with_the_most_results_and_those_that_wait_are_heavy(
    most: int, waiting: set[int], left: set[int] | None
) -> None:
    def some(count: int, ad: int) -> list[Row]:
        return [{"ad": ad, "who": "x", "at": 5, "cost": 0.5}] * count

    closed = taken(pairing(), [*some(9, 1), *some(3, 2), *some(1, 3)], [*some(9, 1), *some(3, 2)])
    found = pairing().heavy(closed, most, 200, waiting)
    assert (None if found is None else set(found[KEY])) == left


# JoinWindows: what closes is cut off, and what is stored comes back in any order

bundles = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=9), max_size=12)


class Concatenation:
    """Segments become one."""

    def merge(self, groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(groups)


def arrivals(given: Sequence[Sequence[int]]) -> list[pl.DataFrame]:
    """Of each bundle a frame, in which records have the number of their arrival."""
    numbers = iter(range(1_000_000))
    schema = {END: pl.Int64, "arrived": pl.Int64}
    return [
        pl.DataFrame([(end, next(numbers)) for end in ends], schema, orient="row") for ends in given
    ]


@given(bundles, st.lists(st.integers(0, 10)).map(sorted), st.integers(2, 4))
def test_each_window_closes_once_with_its_records_in_the_order_of_arrival(
    given: list[list[int]], watermarks: list[int], fan: int
) -> None:
    frames, closed, watermark = arrivals(given), [], 0
    windows = JoinWindows(Concatenation(), fan=fan)
    for number, frame in enumerate(frames):
        windows.add(frame.filter(pl.col(END) > watermark))
        watermark = max([watermark, *watermarks[number : number + 1]])
        closed.append(pl.concat([frame.clear(), *windows.take_closed(watermark)]))
        assert (closed[-1][END] <= watermark).all()
        assert windows.due_at() >= watermark
    closed.append(
        pl.concat(
            [pl.DataFrame(schema={END: pl.Int64, "arrived": pl.Int64}), *windows.take_closed(10)]
        )
    )
    assert not windows
    for found in closed:
        for _, of_window in found.group_by(END):
            assert of_window["arrived"].is_sorted()
    ends = [end for found in closed for end in found[END].unique().to_list()]
    assert len(ends) == len(set(ends))


def test_segments_that_were_stored_in_another_order_are_put_in_order() -> None:
    [frame] = arrivals([[9, 3, 9, 3, 5]])
    windows = JoinWindows(Concatenation(), fan=3)
    windows.restore(7, 0, frame, 3)
    assert [part.rows() for part in windows.take_closed(5)] == [[(5, 4)]]
    assert windows.all_groups().rows() == [(9, 0), (9, 2)]
