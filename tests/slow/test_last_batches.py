"""Sinks write their last batches once the sources have been read, whatever their ``flush``."""

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
computations:
  divided:
    input: numbers
    branch:
      even: "n % 2 == 0"
      rest: otherwise
sinks:
  even: {{files: {{path: "${{output}}/even", flush: {FLUSH_S}s}}}}
  rest: {{files: {{path: "${{output}}/rest", flush: {FLUSH_S}s}}}}
"""


def test_sinks_behind_a_chained_source_do_not_wait_for_their_flush(tmp_path: Path) -> None:
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
