"""Records that the command injects into a run whose workers are killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.slow.runs import REPO, Run
from tests.slow.test_savepoints import done, rows_of, until

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: injected
streams:
  hits: {source: {injection: {}}, timestamp: ts}
computations:
  count:
    input: {hits: {key: page}}
    callback: counting:Count
    output: counts
sinks:
  counts: {files: {path: "${output}/counts", flush: 100ms}}
"""
CODE = """
from millwheel import Computation, ValueState

class Count(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx, record):
        self.seen.set(self.seen.get() + 1)
        ctx.produce("counts", {"page": ctx.key, "n": self.seen.get()})
"""
PAGES = 10
LINES = 40_000


def test_lines_that_are_alike_count_each_while_workers_are_killed(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "counting.py").write_text(CODE)
    lines = [json.dumps({"page": f"p{n % PAGES}", "ts": 1_000_000}) for n in range(LINES)]
    (tmp_path / "hits.jsonl").write_text("\n".join(lines) + "\n")
    run = Run(tmp_path / "p.yaml", tmp_path, {"output": str(tmp_path / "out")}).start()
    until((run.root / "run.json").exists, run)
    inject = [
        sys.executable,
        "-m",
        "millwheel",
        "inject",
        "hits",
        str(tmp_path / "hits.jsonl"),
        "--root",
        str(run.root),
    ]
    ended: list[subprocess.CompletedProcess[str]] = []

    def send() -> None:
        ended.append(subprocess.run(inject, cwd=REPO, capture_output=True, text=True, timeout=200))

    sending = threading.Thread(target=send)
    sending.start()
    run.until_reading()
    run.kill_at_random(("millwheel.workers",), seed=5, times=3, pause_s=(0.2, 0.6))
    sending.join()
    assert ended[0].returncode == 0, ended[0].stderr
    done("stop", "--drain", "--root", str(run.root))
    assert run.wait().code == 0, run.said
    found = Counter((row["page"], row["n"]) for row in rows_of(tmp_path / "out" / "counts"))
    assert found == {(f"p{page}", n): 1 for page in range(PAGES) for n in range(1, LINES // PAGES + 1)}
