"""Callbacks that do not return, on real processes."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.core.formats.codec import encode_value
from millwheel.engine.workers.bundle.hangs import Hang, encode_hang
from tests.slow.runs import Run

CODE = """
    import re
    import time

    from millwheel import Computation, ValueState


    def late(value):
        if value["n"] == 400:
            time.sleep(6)
        return value["user"]


    class Poisoned(Computation):
        seen = ValueState(int, default=0)

        def process_record(self, ctx, record):
            self.seen.set(self.seen.get() + 1)
            if record.value["n"] == 500:
                while True:
                    time.sleep(0.01)
            if record.value["n"] == 700:
                re.match("(a+)+$", "a" * 60 + "b")
            ctx.produce("out", {"n": record.value["n"], "user": ctx.key, "seen": self.seen.get()})
"""
PIPELINE = """
    pipeline: poisoned
    streams:
      given:
        source: {files: {path: "${input}", format: jsonl}}
        timestamp: ts
    computations:
      work: {input: {given: {key: user}}, callback: "poisoned_code:Poisoned", output: out}
    sinks:
      out: {files: {path: "${output}/out"}}
      dead_letters: {files: {path: "${output}/dead"}}
    limits: {callback_timeout: 2s}
"""


def rows(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for part in folder.glob("part-*") for line in part.read_text().splitlines()
    ]


def logged(run: Run) -> str:
    """The logs of all processes of a run."""
    return "".join(path.read_text() for path in (run.root / "logs").glob("*.log"))


@pytest.mark.slow
def test_records_whose_callback_never_returns_are_dead_letters_and_nothing_else_is_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "poisoned_code.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "p.yaml").write_text(textwrap.dedent(PIPELINE))
    lines = [json.dumps({"n": n, "user": f"u{n % 7}", "ts": 1_000_000 + n}) for n in range(1000)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    params = {"input": f"{tmp_path}/in.jsonl", "output": f"{tmp_path}/out"}
    run = Run(tmp_path / "p.yaml", tmp_path, params).start()
    notes = run.root / "hangs" / "work"
    while run.process.poll() is None and not notes.exists():
        time.sleep(0.05)
    # As of a worker that was declared dead before it wrote: nobody will ever meet this one.
    late = Hang(
        "work", "work-0", 1, "record", "'u1'", encode_value(("r", "nowhere", 1)), "a line", "2s"
    )
    HangNotes(open_space(str(run.root))).write("work", encode_hang(late))
    assert run.wait(100).code == 0, run.said[-3000:]
    good = rows(tmp_path / "out" / "out")
    assert sorted(int(str(row["n"])) for row in good) == [
        n for n in range(1000) if n not in (500, 700)
    ]
    for user in range(7):
        seen = sorted(int(str(row["seen"])) for row in good if row["user"] == f"u{user}")
        assert seen == list(range(1, len(seen) + 1))
    letters = sorted(rows(tmp_path / "out" / "dead"), key=lambda row: str(row["value"]))
    assert [row["value"]["n"] for row in letters] == [500, 700]  # type: ignore[index]
    assert all("did not return within 2s" in str(row["reason"]) for row in letters)
    assert [str(row["location"]).split(":")[0] for row in letters] == ["poisoned_code.py"] * 2
    assert list(notes.glob("*.json")) == []
    assert "code that is not a callback" not in logged(run)


@pytest.mark.slow
def test_a_key_function_that_takes_long_is_named_and_nothing_else_happens(tmp_path: Path) -> None:
    (tmp_path / "poisoned_code.py").write_text(textwrap.dedent(CODE))
    text = textwrap.dedent(PIPELINE).replace("key: user", "key: 'poisoned_code:late'")
    (tmp_path / "p.yaml").write_text(text)
    lines = [json.dumps({"n": n, "user": "ann", "ts": 1_000_000 + n}) for n in range(450)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    params = {"input": f"{tmp_path}/in.jsonl", "output": f"{tmp_path}/out"}
    run = Run(tmp_path / "p.yaml", tmp_path, params).start()
    assert run.wait(60).code == 0, run.said[-3000:]
    assert len(rows(tmp_path / "out" / "out")) == 450
    [said] = [line for line in logged(run).splitlines() if "code that is not a callback" in line]
    assert "has not returned for 2s, at poisoned_code.py:" in said
