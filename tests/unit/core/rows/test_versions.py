"""A record gets the last version of its key that is not later than itself, as the row form says."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.pipeline.joins import Version, newer, value_at
from millwheel.core.pipeline.work import Missing
from millwheel.core.rows.kept_records import AT, ROW
from millwheel.core.rows.versions import VERSION, EnrichPlan, VersionSegments, is_version
from millwheel.core.rows.waiting import CHANNEL, NUMBER, KeyTypes, WaitingColumns, by_time

KEYS = KeyTypes(("k",), pl.Int64)
Entry = tuple[int, int, bool]
"""The key, the time, and whether it is a version."""
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans()), max_size=8),
        st.integers(0, 12),
    ),
    max_size=6,
)


def plan(missing: Missing = Missing.KEEP) -> EnrichPlan:
    columns = {
        "records": WaitingColumns(KEYS, {"n": "int"}, 10_000, ROW),
        "others": WaitingColumns(KEYS, {"v": "int"}, 10_000, VERSION),
    }
    return EnrichPlan(columns, {"records": ("k",), "others": ("k",)}, "others", "other", missing)


def frame(entries: Sequence[tuple[int, Entry]], versions: bool) -> pl.DataFrame:
    chosen = [(number, each) for number, each in entries if each[2] is versions]
    name, field = (VERSION, "v") if versions else (ROW, "n")
    return by_time(
        pl.DataFrame(
            {
                KEY: [key for _, (key, _, _) in chosen],
                AT: [at for _, (_, at, _) in chosen],
                NUMBER: [number for number, _ in chosen],
                name: [{field: number} for number, _ in chosen],
                CHANNEL: ["c"] * len(chosen),
            },
            {
                KEY: pl.Int64,
                AT: pl.Int64,
                NUMBER: pl.Int64,
                name: pl.Struct({field: pl.Int64}),
                CHANNEL: pl.String,
            },
        )
    )


@given(STEPS)
def test_versions_in_columns_are_those_of_rows(steps: list[tuple[list[Entry], int]]) -> None:
    kept, waiting = VersionSegments(2), list[tuple[int, Entry]]()
    held: dict[int, Version] = {}
    watermark, number = 0, 0
    for entries, by in steps:
        new = []
        for each in entries:
            number += 1
            if each[1] >= watermark:
                new.append((number, each))
        for versions in (False, True):
            kept.add(frame(new, versions))
        waiting += new
        watermark += by
        due = sorted(
            (each for each in waiting if each[1][1] < watermark),
            key=lambda each: (each[1][1], not each[1][2], each[0]),
        )
        waiting = [each for each in waiting if each not in due]
        wanted = []
        for own, (key, at, version) in due:
            if version and newer(at, held.get(key)):
                held[key] = Version(at, own)
            elif not version:
                wanted.append((own, value_at(held.get(key), at)))
        made = plan().results(kept.segments(), watermark)
        kept.take(watermark)
        kept.numbers()
        found = [] if made is None else made.batch.frame.rows()
        assert [(n, other and other["v"]) for n, other in found] == wanted


@pytest.mark.parametrize(
    ("missing", "rows", "unmatched", "apart"),
    [(Missing.KEEP, 2, 0, []), (Missing.DROP, 1, 1, []), (Missing.DEAD_LETTER, 1, 1, [2])],
)
def test_what_has_no_version(missing: Missing, rows: int, unmatched: int, apart: list[int]) -> None:
    kept = VersionSegments(16)
    for versions in (False, True):
        kept.add(frame([(1, (1, 3, True)), (2, (1, 3, False)), (3, (2, 5, False))], versions))
    made = plan(missing).results(kept.segments(), 9)
    assert made is not None
    assert (len(made.batch), made.unmatched, made.apart.to_list()) == (rows, unmatched, apart)


def test_the_version_in_force_stays_as_segments_are_put_together() -> None:
    kept = VersionSegments(3)
    for number, at in enumerate([1, 4, 2]):
        kept.add(frame([(number, (7, at, True))], True))
        kept.take(5)
    [segment] = kept.segments()
    assert segment.groups[VERSION].to_list() == [{"v": 1}]
    assert is_version(segment.groups).all()
