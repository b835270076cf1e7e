"""Slices through the real runtime: every answer is what DuckDB says of the raw records of the span
it covers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.store_layout import SLICE
from millwheel.core.model.times import duration_us
from millwheel.engine.queries.model import Answer, QueryError
from millwheel.testing import PipelineHarness

S = 1_000_000
SLICES = "{every: 10s, keep: 10m, levels: [10s, 1m, 5m]}"
AGGREGATES = "{n: count, spend: {sum: cost}, dear: {max: cost}, users: {count_distinct: user}}"


def pipeline(
    folder: Path, slices: str = SLICES, aggregate: str = AGGREGATES, fields: str = ""
) -> str:
    path = folder / "slices.yaml"
    path.write_text(
        f"""
pipeline: asked
streams:
  events: {{source: {{injection: {{}}}}, timestamp: at{fields}}}
computations:
  clicks:
    input: {{events: {{key: ad}}}}
    slices: {slices}
    aggregate: {aggregate}
"""
    )
    return str(path)


def duck(records: Sequence[dict[str, Any]], ad: int, start: int, end: int) -> dict[str, Any]:
    """What DuckDB says of the raw records of a span."""
    events = pl.DataFrame(records, dict.fromkeys(("at", "ad", "cost", "user"), pl.Int64))
    row = duckdb.execute(
        'select count(*), coalesce(sum(cost), 0), max(cost), count(distinct "user") from events '
        'where ad = ? and "at" >= ? and "at" < ?',
        [ad, start, end],
    ).fetchone()
    assert len(events) == len(records)
    assert row is not None
    return {"n": row[0], "spend": int(row[1]), "dear": row[2], "users": row[3]}


def asked(harness: PipelineHarness, *question: Any) -> Answer | None:
    """The answer; None where the window has expired."""
    try:
        return harness.ask("clicks", *question)
    except QueryError as ex:
        if ex.code == "beyond_keep":
            return None
        raise


RECORD = st.fixed_dictionaries(
    {
        "at": st.integers(0, 400).map(lambda s: s * S // 2),
        "ad": st.integers(1, 3),
        "cost": st.integers(-5, 50),
        "user": st.integers(1, 5),
    }
)
ASKED = st.tuples(
    st.sampled_from(["7s", "10s", "1m", "3m20s", "10m"]),
    st.integers(1, 500).map(lambda s: s * S // 2),
    st.sampled_from(["covering", "inside"]),
)


@settings(max_examples=13, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.lists(RECORD, max_size=12), st.integers(0, 900), ASKED), min_size=1, max_size=4
    ),
    crash_every=st.sampled_from([None, 11, 23]),
)
def test_every_answer_is_what_duckdb_says_of_the_raw_records_of_its_span(
    tmp_path_factory: pytest.TempPathFactory, parts: list[Any], crash_every: int | None
) -> None:
    path = pipeline(tmp_path_factory.mktemp("p"))
    seen: list[dict[str, Any]] = []
    with PipelineHarness(path, shards=2, workers=1, crash_every=crash_every) as harness:
        for number, (records, watermark, _) in enumerate(parts):
            expired = max(harness.watermark("clicks") - 600 * S, 0)
            for record in records:
                harness.push("events", record)
            seen += [r for r in records if r["at"] - r["at"] % (10 * S) + 10 * S > expired]
            harness.advance_watermark(max(watermark * S, harness.watermark("clicks")))
            # what was merged for it may have changed
            again = [question for _, _, question in parts[: number + 1]]
            for ad, (window, until, mode) in product((1, 2, 3), again):
                answer = asked(harness, ad, window, until, mode)
                if answer is None:
                    continue
                start, end = answer.covered_start_us, answer.covered_end_us
                assert answer.values == duck(seen, ad, start, end)
                if mode == "covering":
                    assert start <= until - duration_us(window) < start + 10 * S
                    assert until <= end < until + 10 * S
                    assert end == until or any(
                        until <= r["at"] < end for r in seen if r["ad"] == ad
                    )


def test_slices_leave_the_store_a_while_after_they_can_not_be_asked_any_more(
    tmp_path: Path,
) -> None:
    with PipelineHarness(pipeline(tmp_path, aggregate="{n: count}"), shards=1) as harness:
        for at in (5, 15, 400):
            harness.push("events", {"at": at * S, "ad": 1})
        assert stored(harness, SLICE) == 7
        harness.advance_watermark(609 * S)
        assert harness.ask("clicks", 1, "10s", 10 * S).values == {"n": 1}
        harness.advance_watermark(610 * S)
        with pytest.raises(QueryError) as caught:
            harness.ask("clicks", 1, "10s", 10 * S)
        assert caught.value.code == "beyond_keep"
        assert harness.ask("clicks", 1, "10s", 20 * S).values == {"n": 1}
        harness.advance_watermark(930 * S)
        harness.advance_watermark(950 * S)
        assert stored(harness, SLICE) == 3


def test_a_record_of_an_expired_slice_is_late_and_one_of_the_next_slice_counts(
    tmp_path: Path,
) -> None:
    with PipelineHarness(pipeline(tmp_path, aggregate="{n: count}")) as harness:
        harness.push("events", {"at": 500 * S, "ad": 1})
        harness.advance_watermark(640 * S)
        harness.push("events", {"at": 39 * S, "ad": 1})
        assert harness.counters["late"] == 1
        harness.push("events", {"at": 40 * S, "ad": 1})
        assert harness.counters["late"] == 1
        assert harness.ask("clicks", 1, "10s", 50 * S).values == {"n": 1}


def stored(harness: PipelineHarness, family: bytes) -> int:
    shards = harness._cluster.shards_of("clicks")
    return sum(1 for shard in shards for _ in shard.store.scan(family))


# cells.py: The cache of accumulators holds what the store holds, also when an aggregator fails half
# way.

CODE = """
from millwheel import Aggregator

class Picky(Aggregator):
    def create(self):
        return []
    def add(self, acc, value, timestamp):
        acc.append(value)
        if value == 13:
            raise LookupError("thirteen")
        return acc
    def merge(self, acc, other):
        return acc + other
"""


def test_a_record_that_an_aggregator_of_the_users_cannot_take_changes_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(CODE)
    with PipelineHarness(
        pipeline(tmp_path, aggregate='{n: count, seen: {"own:Picky": cost}}')
    ) as harness:
        for cost in (1, 13, 2):
            harness.push("events", {"at": 5 * S, "ad": 1, "cost": cost})
        assert harness.ask("clicks", 1, "1m", 60 * S).values == {"n": 2, "seen": [1, 2]}
        assert harness.counters["dead_letters"] == 1
