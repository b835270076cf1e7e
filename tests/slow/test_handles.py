"""Runs that a Python program starts: real processes, a killed worker, an error with its reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from millwheel import Computation, GeneratorSource, Pipeline, StdoutSink, ValueState
from millwheel.errors import BrokenError
from millwheel.python.handles.driver import RunState
from millwheel.python.handles.handle import RunHandle

pytestmark = pytest.mark.slow

COUNT, KEYS = 6_000, 5


class Counting(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.produce("counted", {"key": ctx.key, "n": self.seen.get()})


def counting(rate: float | None = None, count: int | None = COUNT) -> Pipeline:
    p = Pipeline("counting")
    loads = p.read("loads", GeneratorSource(rate=rate, count=count, keys=KEYS))
    loads.map(lambda value: {"key": value["key"]}, output="mapped").key_by("key").process(
        Counting, output="counted"
    )
    return p


def until(handle: RunHandle, records: int) -> None:
    deadline_s = time.monotonic() + 60
    while handle.status().summary.records_in < records:
        assert not handle.done, handle.said
        assert time.monotonic() < deadline_s, handle.status()
        time.sleep(0.02)


def test_a_run_in_the_background_survives_a_kill_and_gives_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with counting(rate=3_000).start() as handle:
        until(handle, 500)
        assert handle.status().state is RunState.RUNNING
        assert "records" in handle._repr_html_()
        children = psutil.Process(handle.pid).children(recursive=True)
        victim = next(each for each in children if "millwheel.engine.workers" in each.cmdline())
        victim.kill()
        result = handle.result(120)
    assert result.finished
    assert result.summary.restarts
    rows = result.to_polars("counted").sort("key", "n")
    assert rows.height == COUNT
    assert (
        rows.group_by("key").len().sort("key")["len"].to_list()
        == rows.group_by("key").max().sort("key")["n"].to_list()
    )
    assert handle.status().state is RunState.FINISHED
    # it was complete already
    assert counting(rate=3_000).run(background=True).result(60).to_polars().height == COUNT


@pytest.mark.long
def test_a_run_stops_where_it_is_and_the_same_call_continues_it(tmp_path: Path) -> None:
    handle = counting(rate=5_000).start(root=tmp_path / "root", workers=1)
    until(handle, 200)
    assert handle.stop().state is RunState.STOPPED
    assert not handle.result().finished
    again = counting(rate=5_000).start(root=tmp_path / "root", workers=1).result(120)
    assert again.to_polars("counted").height == COUNT


def test_a_run_that_fails_raises_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def odd(value: Any) -> Any:
        return {"half": 1 // (value["value"] * 0)}

    p = Pipeline("broken")
    p.read("loads", GeneratorSource(count=100, keys=2)).map(
        odd, output="halves", on_error="stop"
    ).write(StdoutSink())
    with pytest.raises(BrokenError, match="ZeroDivisionError") as found:
        p.run(root=tmp_path / "root", workers=1)
    assert found.value.node == "halves"
    assert "halves failed" in capfd.readouterr().err


SCRIPT = """
import sys, time
from millwheel import GeneratorSource, Pipeline, StdoutSink
p = Pipeline("printing")
p.read("loads", GeneratorSource(rate=200)).map(lambda v: {"n": v["id"]},
  output="seen").write(StdoutSink(flush="0s"))
if sys.argv[1] == "wait":
    p.run(workers=1)
else:
    handle = p.start(workers=1)
    print(handle.pid, flush=True)
    time.sleep(60)
"""


def test_ctrl_c_stops_the_run_in_order_and_what_it_prints_is_ours(tmp_path: Path) -> None:
    script = tmp_path / "printing.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "wait"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith('{"n":')
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Stopped. The same command continues" in said
    assert "KeyboardInterrupt" in said


def test_a_run_does_not_outlive_the_program_that_holds_it(tmp_path: Path) -> None:
    script = tmp_path / "printing.py"
    script.write_text(SCRIPT)
    holder = subprocess.Popen(
        [sys.executable, str(script), "hold"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    driver = psutil.Process(int(holder.stdout.readline()))
    while not (children := driver.children(recursive=True)):
        time.sleep(0.02)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    _, alive = psutil.wait_procs([driver, *children], timeout=60)
    assert not alive
