"""Records that end their worker, on real processes, with kills from outside meanwhile."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import time
from pathlib import Path

import pytest

from tests.slow.runs import Run

CODE = """
    import ctypes
    import os

    from millwheel import Computation


    class Bad(Computation):
        def process_record(self, ctx, record):
            n = record.value["n"]
            if n == 500:
                ctypes.string_at(0)
            if n == 700:
                os._exit(3)
            ctx.produce("out", {"n": n})
"""
PIPELINE = """
    pipeline: bad
    streams:
      given: {source: {files: {path: "${input}", format: jsonl}}, timestamp: ts}
    computations:
      work: {input: {given: {key: user}}, callback: "bad_code:Bad", output: out}
    sinks:
      out: {files: {path: "${output}/out"}}
      dead_letters: {files: {path: "${output}/dead"}}
"""


def rows(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for part in folder.glob("part-*") for line in part.read_text().splitlines()
    ]


@pytest.mark.slow
def test_a_record_that_ends_its_worker_is_a_dead_letter_and_kills_from_outside_cost_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "bad_code.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "p.yaml").write_text(textwrap.dedent(PIPELINE))
    lines = [json.dumps({"n": n, "user": f"u{n % 7}", "ts": 1_000_000 + n}) for n in range(1000)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    run = Run(
        tmp_path / "p.yaml",
        tmp_path,
        {"input": f"{tmp_path}/in.jsonl", "output": f"{tmp_path}/out"},
    ).start()
    killed = 0
    while run.process.poll() is None and killed < 3:
        for worker in run.processes("millwheel.engine.workers"):
            killed += 1
            os.kill(worker.pid, signal.SIGKILL)
        time.sleep(2.0)
    assert run.wait(150).code == 0, run.said[-3000:]
    assert sorted(int(str(row["n"])) for row in rows(tmp_path / "out" / "out")) == [
        n for n in range(1000) if n not in (500, 700)
    ]
    letters = {row["value"]["n"]: row for row in rows(tmp_path / "out" / "dead")}  # type: ignore[index]
    assert set(letters) == {500, 700}
    assert "killed by SIGSEGV" in str(letters[500]["reason"])
    assert "exit code 3" in str(letters[700]["reason"])
    assert str(letters[500]["location"]).startswith("bad_code.py:")


@pytest.mark.slow
def test_a_line_that_ends_who_reads_it_is_a_dead_letter_with_its_text(tmp_path: Path) -> None:
    (tmp_path / "bad_code.py").write_text(
        "import ctypes\n\n\ndef at(value):\n    return ctypes.string_at(0) if value['n'] == 30 else"
        " value['n']\n"
    )
    (tmp_path / "p.yaml").write_text(
        textwrap.dedent(PIPELINE)
        .replace("timestamp: ts", 'timestamp: "bad_code:at"')
        .replace('callback: "bad_code:Bad"', "window: {tumbling: 1s}, aggregate: {hits: count}")
    )
    lines = [json.dumps({"n": n, "user": "u"}) for n in range(100)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    run = Run(
        tmp_path / "p.yaml",
        tmp_path,
        {"input": f"{tmp_path}/in.jsonl", "output": f"{tmp_path}/out"},
    ).start()
    assert run.wait(150).code == 0, run.said[-3000:]
    assert [row["hits"] for row in rows(tmp_path / "out" / "out")] == [99]
    [letter] = rows(tmp_path / "out" / "dead")
    assert (letter["value"], str(letter["position"])[:9]) == (lines[30], "in.jsonl@")
    assert "bad_code.py:5" in str(letter["reason"])
