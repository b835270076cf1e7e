"""Records are posted to a run while its worker and the endpoint are killed."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.servers.programs import free_port
from tests.slow.runs import REPO, Run, rows_of
from tests.slow.test_inject import CODE
from tests.slow.test_savepoints import done

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: posted
streams:
  hits: {source: {http: {port: PORT}}, timestamp: ts,
         watermark: {max_delay: 1h, idle_after: never}}
computations:
  count:
    input: {hits: {key: page}}
    callback: counting:Count
    output: counts
sinks:
  counts: {files: {path: "${output}/counts", flush: 100ms}}
"""
REQUESTS = 20


def post(port: int, body: bytes, key: str) -> tuple[int, dict[str, int]]:
    """The answer, whoever has to be asked again for it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as line:
                line.request("POST", "/", body, {"Idempotency-Key": key})
                answer = line.getresponse()
                status, told = answer.status, json.loads(answer.read())
            if status not in (429, 503):
                return status, told
        except (OSError, http.client.HTTPException):
            pass
        assert time.monotonic() < deadline, "nobody answers"
        time.sleep(0.05)


def test_what_is_posted_counts_once_while_a_worker_and_the_endpoint_are_killed(
    tmp_path: Path,
) -> None:
    port = free_port()
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("PORT", str(port)))
    (tmp_path / "counting.py").write_text(CODE)
    run = Run(tmp_path / "p.yaml", tmp_path, {"output": str(tmp_path / "out")}, workers=1).start()
    lines = b'{"page": "a", "ts": 1}\n{"page": "b", "ts": 2}\n'
    for number in range(REQUESTS):
        if number in (5, 12):
            [victim] = run.processes(
                "millwheel.engine.workers" if number == 5 else "millwheel.tools.http_source"
            )
            victim.send_signal(signal.SIGKILL)
        status, told = post(port, lines, f"k{number}")
        assert (status, told["accepted"] + told["duplicates"]) == (200, 2)
    assert post(port, lines, "k3") == (200, {"accepted": 0, "duplicates": 2, "rejected": 0})
    assert post(port, b'{"page": "a", "ts": 1}\nno\n', "k99")[0] == 400
    done("stop", "--drain", "--root", str(run.root))
    assert run.wait().code == 0, run.said
    assert set(run.summary["restarts"]) == {"worker 0", "http hits"}  # type: ignore[call-overload]
    found = sorted((row["page"], row["n"]) for row in rows_of(tmp_path / "out" / "counts"))
    assert found == [(page, n) for page in "ab" for n in range(1, REQUESTS + 1)]


def blocks(page: str, language: str) -> list[str]:
    """The examples of a page of the docs."""
    return re.findall(
        rf"```{language}\n(.*?)```", (REPO / "docs" / page).read_text(encoding="utf-8"), re.DOTALL
    )


AFTER = """
computations:
  passed: {input: {clicks: {key: page}}, steps: [{filter: "ts > 0"}], output: out}
sinks: {out: {files: {path: OUT, flush: 100ms}}}
"""
ASYNC = """
import asyncio
asyncio.run(forward([{"page": "c", "ts": 3_000_000, "event_id": "e2"}]))
"""


def test_the_examples_of_the_pages_work_as_they_are_written(tmp_path: Path) -> None:
    """But for the port, which may be taken here."""
    if shutil.which("curl") is None:
        pytest.skip("the example needs curl")
    port = free_port()
    [stream], [curl] = (
        blocks("http.md", "yaml"),
        [each for each in blocks("http.md", "sh") if "curl" in each],
    )
    assert "port: 8080" in stream
    after = AFTER.replace("OUT", str(tmp_path / "out" / "passed"))
    (tmp_path / "p.yaml").write_text(
        "pipeline: pages\n" + stream.replace("8080", str(port)) + after
    )
    run = Run(tmp_path / "p.yaml", tmp_path, workers=1).start()
    post(port, b"", "none")  # it is ready
    command, _, told = curl.replace("8080", str(port)).strip().partition("\n")
    assert (
        subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=60
        ).stdout.strip()
        == told
    )
    plain, waited = blocks("injection.md", "python")
    for code, says in ((plain, "2 0 0\n"), (waited + ASYNC, "")):
        found = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={"PYTHONPATH": str(REPO)},
            capture_output=True,
            timeout=60,
        )
        assert (found.stdout.decode(), found.returncode) == (says, 0), found.stderr.decode()
    done("stop", "--drain", "--root", str(run.root))
    assert run.wait().code == 0, run.said
    assert sorted(row["page"] for row in rows_of(tmp_path / "out" / "passed")) == [
        "a",
        "a",
        "b",
        "c",
    ]
