"""Records that the command, and a program, inject into a run whose workers are killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from millwheel.client import AsyncInjector, InjectionResult, Injector
from tests.slow.runs import REPO, Run, rows_of
from tests.slow.test_savepoints import done
from tests.slow.waits import until

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: injected
streams:
  hits: {source: {injection: {}}, timestamp: ts,
    watermark: {idle_after: never}}  # all records have one time
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
SENT = 5_000  # by a program, and a hundred that it sends twice


async def sent(run: Run) -> int:
    """Records by both clients, in many small batches; how many count."""
    records = [{"page": f"p{n % PAGES}", "ts": 1_000_000} for n in range(SENT)]
    batches = [records[start : start + 100] for start in range(0, SENT, 100)]
    async with AsyncInjector(str(run.root), "hits") as hits:
        first = await asyncio.gather(*(hits.send(batch) for batch in batches[::2]))
    with Injector(str(run.root), "hits") as again:
        second = [again.send(batch) for batch in batches[1::2]]
        copies = again.send(batches[1], ids=[f"mine {n}" for n in range(100)])
        assert copies.accepted + copies.duplicates == 100
        copies = again.send(batches[1], ids=[f"mine {n}" for n in range(100)])
        assert copies == InjectionResult(duplicates=100)
    return sum(each.accepted + each.duplicates for each in (*first, *second))


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
    programs = threading.Thread(target=lambda: told.append(asyncio.run(sent(run))))
    told: list[int] = []
    programs.start()
    run.until_reading()
    run.kill_at_random(("millwheel.engine.workers",), seed=5, times=3, pause_s=(0.2, 0.6))
    sending.join()
    programs.join()
    assert told == [SENT]
    assert ended[0].returncode == 0, ended[0].stderr
    done("stop", "--drain", "--root", str(run.root))
    assert run.wait().code == 0, run.said
    found = Counter((row["page"], row["n"]) for row in rows_of(tmp_path / "out" / "counts"))
    assert found == {
        (f"p{page}", n): 1
        for page in range(PAGES)
        for n in range(1, (LINES + SENT + 100) // PAGES + 1)
    }
