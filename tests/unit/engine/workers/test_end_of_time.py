"""At the last instant: what a global window emits when the input has ended, and what is left in
count windows, has that time. It counts for whatever consumes it, like any other record."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.core.model.times import LAST_TIME, MAX_TIME, MIN_TIME, SECOND, instant
from millwheel.testing import PipelineHarness

CHAIN = """
    pipeline: ends
    streams:
      hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}
    computations:
      first: {input: {hits: {key: user}}, window: FIRST, aggregate: {hits: count}, output: totals}
      second: {input: {totals: {key: SECOND_KEY}}, SECOND, output: out}
"""
CODE = """
    from millwheel import Computation

    class Later(Computation):
        "A timer for a time after the last instant, and a production for one."
        def process_record(self, ctx, record):
            ctx.set_timer("later", record.timestamp + 60_000_000)

        def process_timer(self, ctx, timer):
            ctx.produce("out", {"n": 1}, timer.at + 60_000_000)
"""
WINDOWS = [
    "global",
    "{tumbling: 1m}",
    "{sliding: 1m, every: 20s}",
    "{sliding: 1m, every: 20s, emit: changes}",
    "{sliding: 1m, every: 20s, emit: changes}, allowed_lateness: 1h, accumulation: accumulating",
    "{session: 1m}",
    "{session: 1m}, accumulation: retracting, allowed_lateness: 1m",
    "{cumulative: 1h, every: 1m}",
    "{count: 2}",
    "{tumbling: 1m}, trigger: {after_watermark: {late: {after_count: 1}}}, allowed_lateness: 1h",
]


def out(folder: Path, first: str, second: str, key: str = "hits", **options: int) -> list[Any]:
    """What the second computation says of the totals of two users with a record each."""
    (folder / "late_code.py").write_text(dedent(CODE))
    text = CHAIN.replace("FIRST", first).replace("SECOND_KEY", key).replace("SECOND", second)
    (folder / "p.yaml").write_text(dedent(text))
    with PipelineHarness(folder / "p.yaml", **options) as harness:
        for user in ("ann", "bob"):
            harness.push("hits", {"user": user, "at": 0})
        harness.advance_watermark(300 * SECOND)
        harness.finish()
        assert harness.read("dead_letters") == []
        assert "late" not in harness.counters
        return harness.read("out")


@pytest.mark.parametrize("layout", [(1, 1), (3, 2)])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("first", ["global", "{count: 2}"])
def test_what_has_the_last_instant_counts_in_every_window(
    tmp_path: Path, first: str, window: str, layout: tuple[int, int]
) -> None:
    rows = out(
        tmp_path,
        first,
        f"window: {window}, aggregate: {{n: count}}",
        shards=layout[0],
        workers=layout[1],
    )
    assert max(row["n"] for row in rows) == 2
    assert all(MIN_TIME <= row["window_start"] < row["window_end"] <= MAX_TIME for row in rows)


def test_what_has_the_last_instant_joins(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        dedent("""
        pipeline: ends
        streams:
          hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}
        computations:
          a: {input: {hits: {key: user}}, window: global, aggregate: {n: count}, output: as}
          b: {input: {hits: {key: user}}, window: {count: 9}, aggregate: {n: count}, output: bs}
          both: {input: {as: {key: user}, bs: {key: user}}, window: {tumbling: 1m}, join: inner,
            output: out}
        """)
    )
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("hits", {"user": "ann", "at": 0})
        harness.finish()
        assert [row["user"] for row in harness.read("out")] == ["ann"]


def test_a_timer_for_after_the_last_instant_is_one_for_the_last_instant(tmp_path: Path) -> None:
    assert out(tmp_path, "global", 'callback: "late_code:Later"', key="user") == [
        {"n": 1},
        {"n": 1},
    ]
    assert instant(MAX_TIME + 1) == LAST_TIME
    assert instant(MIN_TIME - 1) == MIN_TIME
    with pytest.raises(TypeError):
        instant(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("output_time", ["end_of_window", "latest", "earliest"])
def test_what_is_left_in_a_count_window_counts_behind_it_wherever_a_crash_comes(
    tmp_path: Path, output_time: str
) -> None:
    (tmp_path / "p.yaml").write_text(
        dedent(f"""
        pipeline: fives
        streams:
          hits: {{source: {{injection: {{}}}}, timestamp: {{field: at, unit: us}}}}
        computations:
          fives: {{input: {{hits: {{key: user}}}}, window: {{count: 5}}, aggregate: {{hits: count}},
                  output_time: {output_time}, output: groups}}
          minutes: {{input: {{groups: {{key: user}}}}, window: {{tumbling: 1m}},
            aggregate: {{n: {{sum: hits}}}},
                    output: out}}
        """)
    )

    def said(**options: int) -> tuple[list[Any], int]:
        with PipelineHarness(tmp_path / "p.yaml", **options) as harness:
            for second in range(7):
                harness.push("hits", {"user": "ann", "at": second * SECOND})
            harness.advance_watermark(300 * SECOND)
            harness.finish()
            return [(row["window_start"], row["n"]) for row in harness.read("out")], harness.units

    rows, units = said()
    held = [(0, 7)]
    last = LAST_TIME - LAST_TIME % (60 * SECOND)
    assert rows == (held if output_time == "earliest" else [(0, 5), (last, 2)])
    for unit in range(1, units, 11):
        assert said(crash_at=unit)[0] == rows, f"unit {unit}"
