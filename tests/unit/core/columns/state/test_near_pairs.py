"""Joins within an interval in columns, beside a loop over all pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.own_functions import language_of
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import ColumnBatch, key_column
from millwheel.core.columns.forms.joins import near_pairing
from millwheel.core.columns.groups_frame import END, START
from millwheel.core.columns.pairs import AT, VALUE
from millwheel.core.columns.state.near_pairs import (
    NUMBER,
    Bounds,
    NearPairing,
    NearRows,
    at_of,
    other,
)
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME
from millwheel.core.order.labels import Labels
from millwheel.language.spec.pipelines import load_pipeline

TEXT = """
pipeline: joins
streams:
  shown:
    source: {{files: {{path: a.jsonl, format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    fields: {{at: int, ad: int, ends: int, what: str, cost: float}}
  clicked:
    source: {{files: {{path: a.jsonl, format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    fields: {{begins: int, ad: int, at: int, what: str, cost: float}}
computations:
  matched:
    input: {{shown: {{key: {key}}}, clicked: {{key: {key}}}}}
    join: {{kind: {kind}, within: {within}}}
    {more}
    output: matched
"""
NEAR, NAMED = "{before: 2us, after: 1us}", "{until: shown.ends + 1, from: clicked.begins}"
Row = dict[str, Any]


def pairing_or_why(folder: Path, **parts: str) -> NearPairing | str:
    path = folder / "pipeline.yaml"
    given_parts = {"key": "ad", "kind": "inner", "within": NEAR, "more": "", **parts}
    path.write_text(TEXT.format(**given_parts))
    spec = load_pipeline(path)
    return near_pairing(spec.computations[0], spec, language_of(spec).compile, Labels())


def pairing_of(folder: Path, within: str = NEAR, key: str = "ad") -> NearPairing:
    found = pairing_or_why(folder, within=within, key=key)
    assert isinstance(found, NearPairing)
    return found


def batch(stream: str, rows: list[Row], key: tuple[str, ...] = ("ad",)) -> ColumnBatch:
    bound = "ends" if stream == "shown" else "begins"
    kinds = {"at": pl.Int64, "ad": pl.Int64, bound: pl.Int64, "what": pl.String, "cost": pl.Float64}
    frame = pl.DataFrame([{name: each.get(name) for name in kinds} for each in rows], kinds)
    at = np.array([each["at"] for each in rows], np.int64)
    keys = key_column([frame[name] for name in key])
    return ColumnBatch(stream, np.array([], np.int64), at, keys, frame)


def row(at: int, ad: int = 1, bound: int = 0) -> Row:
    return {"at": at, "ad": ad, "ends": at + bound, "begins": at - bound, "what": "x", "cost": 0.5}


rows = st.lists(
    st.builds(row, st.integers(0, 9), st.integers(1, 3), st.integers(-2, 4)), max_size=6
)
story = st.lists(st.tuples(st.sampled_from(["shown", "clicked"]), rows, st.booleans()), max_size=6)


def near(within: str, left: Row, right: Row) -> bool:
    if within == NEAR:
        return bool(-2 <= right["at"] - left["at"] <= 1)
    return bool(left["at"] <= right["at"] <= left["ends"] + 1 and left["at"] >= right["begins"])


@pytest.mark.parametrize("within", [NEAR, NAMED])
@given(batches=story)
def test_every_two_that_are_near_are_paired_once(
    tmp_path_factory: pytest.TempPathFactory, within: str, batches: list[Any]
) -> None:
    """Whichever of them come encoded, and however they are bundled in segments."""
    pairing = pairing_of(tmp_path_factory.mktemp("near"), within)
    kept = NearRows(pairing, fan=2)
    found: Counter[tuple[Any, ...]] = Counter()
    for stream, values, as_rows in batches:
        frame = pairing.taken(batch(stream, values))
        if as_rows:
            frame = one_by_one(pairing, stream, values, frame)
        new = frame.with_columns(pl.int_range(0, frame.height).alias(NUMBER))
        pairs = pairing.pairs([new], [each.groups for each in kept.segments()], None)
        found.update(seen(pairing, pairs))
        kept.add(frame)
    everything = {
        name: [each for stream, values, _ in batches if stream == name for each in values]
        for name in ("shown", "clicked")
    }
    assert found == Counter(
        (left["ad"], left["at"], right["at"], max(left["at"], right["at"]))
        for left in everything["shown"]
        for right in everything["clicked"]
        if left["ad"] == right["ad"] and near(within, left, right)
    )


def one_by_one(
    pairing: NearPairing, stream: str, values: list[Row], frame: pl.DataFrame
) -> pl.DataFrame:
    times = frame.select(AT, START, "last").rows()
    side = pairing.streams.index(stream)
    return pairing.encoded(
        [
            (side, each["ad"], *bounds, encode_value(each))
            for each, bounds in zip(values, times, strict=True)
        ]
    )


def seen(pairing: NearPairing, pairs: pl.DataFrame | None) -> list[tuple[Any, ...]]:
    if pairs is None:
        return []
    times = at_of(pairs).tolist()
    if VALUE in pairs.schema:
        sides = [[decode_value(each) for each in pairs[name]] for name in (VALUE, other(VALUE))]
    else:
        made = pairing.rows(pairs)
        assert made.columns == ["ad", "shown", "clicked"]
        sides = [made[name].to_list() for name in ("shown", "clicked")]
    return [
        (left["ad"], left["at"], right["at"], at)
        for left, right, at in zip(*sides, times, strict=True)
    ]


def test_a_late_record_meets_those_before_it_that_were_kept(tmp_path: Path) -> None:
    """As one by one: what is behind the watermark meets what is there, and is not kept."""
    pairing = pairing_of(tmp_path, "{before: 20us, after: 20us}")
    left, right = (
        pairing.taken(batch(stream, [row(at)])).with_columns(pl.lit(number).alias(NUMBER))
        for stream, at, number in (("shown", 5, 0), ("clicked", 8, 1))
    )
    assert pairing.pairs([left, right], [], 25) is not None
    assert pairing.pairs([left, right], [], 26) is None  # the first was gone by then
    after = left.with_columns(pl.lit(2).alias(NUMBER))
    assert pairing.pairs([after, right], [], 26) is not None
    assert pairing.pairs([after, right], [], 29) is None


def test_of_two_fields_as_a_key_both_are_equal(tmp_path: Path) -> None:
    pairing = pairing_of(tmp_path, key="[ad, what]")
    frames = [
        pairing.taken(batch(stream, [row(1), {**row(1), "what": "y"}], ("ad", "what")))
        for stream in ("shown", "clicked")
    ]
    new = [frame.with_columns(pl.int_range(0, 2).alias(NUMBER)) for frame in frames]
    pairs = pairing.pairs(new, [], None)
    assert pairs is not None
    assert pairing.rows(pairs).select("ad", "what").rows() == [(1, "x"), (1, "y")]


def test_what_columns_cannot_hold_is_unfit(tmp_path: Path) -> None:
    pairing = pairing_of(tmp_path, NAMED)
    for odd in ({"at": 2**62}, {"ends": None}, {"ends": 2**63 - 1}):
        with pytest.raises(Inexact):
            pairing.taken(batch("shown", [row(1), {**row(1), **odd}]))
    fewer = batch("shown", [row(1)])
    with pytest.raises(Inexact):
        pairing.taken(
            ColumnBatch("shown", fewer.seqs, fewer.timestamps, fewer.keys, fewer.frame.drop("what"))
        )


def test_a_null_as_a_bound_bounds_everything(tmp_path: Path) -> None:
    pairing = pairing_of(tmp_path, "{until: shown.ends}")
    [bounds] = pairing.taken(batch("shown", [{**row(7), "ends": None}])).select("last", END).rows()
    assert bounds == (MIN_TIME, 8)


def test_times_at_the_ends_of_time_are_held_where_they_come_one_by_one(tmp_path: Path) -> None:
    frame = pairing_of(tmp_path).encoded(
        [(0, 1, MIN_TIME, MIN_TIME - 2, MIN_TIME + 1, b""), (0, 1, LAST_TIME, 5, 2**63 + 5, b"")]
    )
    assert frame[START].to_list() == [MIN_TIME, 5]
    assert frame[END].to_list() == [MIN_TIME + 2, MAX_TIME]


def lasting(pairing: NearPairing) -> NearPairing:
    return replace(pairing, bounds=(Bounds(None, None), Bounds(None, None)), lasting=True)


@pytest.mark.parametrize("key", ["ad", "[ad, what]"])
def test_records_that_rows_kept_are_columns_again(tmp_path: Path, key: str) -> None:
    pairing = lasting(pairing_of(tmp_path, key=key))
    names = ("ad",) if key == "ad" else ("ad", "what")
    taken = batch("shown", [row(1), row(2, ad=2)], names)
    kept = [encode_value(value) for value in taken.frame.to_dicts()]
    frame = pairing.recalled(0, taken.keys, [1, 2], kept)
    assert frame.equals(pairing.taken(taken))


@pytest.mark.parametrize("at", [1, 2**62])
def test_records_that_rows_kept_and_columns_cannot_hold_stay_encoded(
    tmp_path: Path, at: int
) -> None:
    keys = pl.Series([1])
    value = encode_value(row(1) if at > 1 else {**row(1), "cost": 3})
    frame = lasting(pairing_of(tmp_path)).recalled(0, keys, [at], [value])
    assert frame[VALUE].to_list() == [value]
    assert frame[AT].to_list() == [at]
