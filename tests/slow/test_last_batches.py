"""Sinks write their last batches once the sources have been read, whatever their ``flush``, and a
sink for which nothing is left writes no file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slow.runs import Run, rows_of

pytestmark = pytest.mark.slow

FLUSH_S, RECORDS = 40, 300
PIPELINE = f"""
pipeline: p
streams:
  numbers:
    source: {{files: {{path: "${{input}}/*.jsonl", format: jsonl}}}}
    timestamp: n
  again:
    source: {{files: {{path: "${{input}}/*.jsonl", format: jsonl}}}}
    timestamp: n
computations:
  divided:
    input: numbers
    branch:
      even: "n % 2 == 0"
      rest: otherwise
  dropped:
    input: again
    filter: "n < 0"
    output: nothing
sinks:
  nothing: {{files: {{path: "${{output}}/nothing", flush: {FLUSH_S}s}}}}
  even: {{files: {{path: "${{output}}/even", flush: {FLUSH_S}s}}}}
  rest: {{files: {{path: "${{output}}/rest", flush: {FLUSH_S}s}}}}
"""


def test_sinks_behind_a_chained_source_end_with_it_whatever_is_left_for_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": number}) + "\n" for number in range(RECORDS)]
    (tmp_path / "in" / "numbers.jsonl").write_text("".join(lines))
    (tmp_path / "p.yaml").write_text(PIPELINE)
    params = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    # what it takes less is the time of sinks that have not heard of the end
    run = Run(tmp_path / "p.yaml", tmp_path, params).start().wait(FLUSH_S - 5)
    assert run.code == 0, run.said
    found = [row["n"] for name in ("even", "rest") for row in rows_of(tmp_path / "out" / name)]
    assert sorted(found) == list(range(RECORDS))
    assert list((tmp_path / "out" / "nothing").glob("*.jsonl")) == []
    counted = run.summary["nodes"]
    assert counted["source.again"]["records_in"] == RECORDS
    assert "records_out" not in counted["sink.nothing"], "the filter before it drops all of them"
    assert run.summary["records_out"] == RECORDS
