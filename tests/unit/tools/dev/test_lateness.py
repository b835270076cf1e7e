"""How many records a max_delay drops is what a run with it would drop."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.lateness import late_mask
from millwheel.tools.cli.app import app
from millwheel.tools.dev.lateness import LADDER, behind_us, delay_for, late_share, rounded

WEBLOG = Path(__file__).parents[4] / "examples" / "weblog"
TIMES = st.lists(st.integers(0, 100), min_size=1, max_size=50)


@given(TIMES, st.integers(0, 100))
def test_the_share_is_that_of_the_records_which_a_source_drops(
    times: list[int], delay: int
) -> None:
    dropped = late_mask(np.array(times, np.int64), MIN_TIME, delay)
    assert late_share(behind_us(times), delay) == pytest.approx(float(dropped.mean()))


@given(TIMES, st.sampled_from([0.0, 0.001, 0.1, 0.5]))
def test_a_delay_for_a_share_is_the_shortest_that_drops_no_more(
    times: list[int], share: float
) -> None:
    behind = behind_us(times)
    found = delay_for(behind, share)
    assert late_share(behind, found) <= share
    assert found == 0 or late_share(behind, found - 1) > share


def test_delays_are_rounded_up_to_such_as_people_write() -> None:
    assert [rounded(each) for each in (0, 1_000_001, 59_000_000)] == [
        1_000_000,
        2_000_000,
        60_000_000,
    ]
    assert list(LADDER) == sorted(LADDER)
    assert rounded(LADDER[-1] + 7) == LADDER[-1] + 7


def test_the_command_shows_each_delay_each_source_and_a_suggestion() -> None:
    sets = ["--set", f"input={WEBLOG}/data/apache_access.log", "--set", "output=unused"]
    shown = CliRunner().invoke(app, ["lateness", str(WEBLOG / "pipeline.yaml"), *sets])
    assert shown.exit_code == 0
    assert "suggested: watermark: {max_delay: 1m}" in shown.output
    done = CliRunner().invoke(app, ["lateness", str(WEBLOG / "pipeline.yaml"), *sets, "--json"])
    [hits] = msgspec.json.decode(done.stdout)["streams"]
    assert (hits["records"], hits["suggested_us"], hits["late"]) == (10_000, 60_000_000, 0)
    assert hits["late_by_delay_us"]["30000000"] == 0.45
    assert hits["partitions"] == {
        "apache_access.log": {"late": 0, "delay_us_for_0.001": 59_000_000}
    }


def test_sources_differ_and_what_cannot_be_judged_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": 100}\n{"t": 40}\n{"t": "soon"}\n')
    (tmp_path / "b.jsonl").write_text('{"t": 100}\n{"t": 101}\n')
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""
pipeline: p
streams:
  hits:
    source: {{files: {{path: "{tmp_path}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: t, unit: s}}
  sent: {{source: {{injection: {{}}}}, timestamp: at}}
  rows: {{source: {{files: {{path: "{tmp_path}/b.jsonl", format: jsonl}}}}, table: t}}
computations:
  m: {{input: [hits, sent], map: {{n: t}}, output: m}}
sinks: {{m: {{stdout: {{}}}}, rows: {{stdout: {{mode: changelog}}}}}}
"""
    )
    done = CliRunner().invoke(app, ["lateness", str(file)])
    assert done.exit_code == 0, done.output
    assert "a.jsonl: 50.000% late; 1m for 0.1 %" in done.output
    assert "b.jsonl: none late; 0s for 0.1 %" in done.output
    assert "! sent: its records would be made up" in done.output
    assert "! rows: no record is late, since none has a time" in done.output
