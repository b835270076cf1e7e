"""``millwheel chaos`` on an example: every kind of process is killed, and the results are the
same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.slow.runs import EXAMPLES, REPO, ads_events

pytestmark = pytest.mark.slow


def chaos(
    folder: Path, records: int, words: str, skipped: str | None = None
) -> subprocess.CompletedProcess[str]:
    """A run with faults and one without, which have the same results. The test is skipped where the
    command says ``skipped``."""
    command = [sys.executable, "-m", "millwheel", "chaos", str(EXAMPLES / "ads" / "pipeline.yaml")]
    command += ["--set", f"input={ads_events(folder, records)}"]
    command += ["--set", f"output={folder}/out/{{run}}", "--folder", f"{folder}/chaos"]
    command += [*words.split(), "--summary", str(folder / "summary.json")]
    environment = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=290)
    if skipped is not None and skipped in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("rows, the same") == 2
    return done


def need_namespaces() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command `ip`")


def test_kills_of_every_kind_change_nothing(tmp_path: Path) -> None:
    # fewer are done before the first fault
    done = chaos(
        tmp_path, 500_000, "--kill workers,master,injector,zookeeper --every 1s --faults 5 --seed 4"
    )
    assert "ctr: " in done.stderr
    assert "killed one of the" in done.stderr
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]


def left_behind() -> list[Path]:
    """Network namespaces of runs that have ended; other tests may run beside this one."""
    return [
        each
        for each in Path("/run/netns").glob("mwchaos-*")
        if not psutil.pid_exists(int(each.name.split("-")[1]))
    ]


@pytest.mark.long
@pytest.mark.parametrize(("workers", "spares"), [("4", "0"), ("2", "auto")])
def test_a_host_that_is_lost_with_all_its_workers_changes_nothing(
    tmp_path: Path, workers: str, spares: str
) -> None:
    """Two hosts with two workers each: without spares, or with the two that ``auto`` finds to be
    needed."""
    need_namespaces()
    words = f"--kill hosts --hosts 2 --workers {workers} --spares {spares} --one-by-one"
    # The limit is of each run: what a time-out of the test kills leaves its children behind.
    words += " --limit 135s --every 500ms --faults 1 --seed 5"
    chaos(tmp_path, 400_000, words, skipped="does not work here")
    [fault] = json.loads((tmp_path / "summary.json").read_text())["faults"]
    assert (fault["target"], fault["fault"], fault["count"]) == ("hosts", "kill", 1)
    assert fault["reassigned"]["seen"] == 1, "others have its ranges"
    assert fault["detected"]["p50"] > 1.5, "a lost host says nothing, until its sessions end"
    if spares == "auto":
        assert "The worker 3 is started." in (tmp_path / "chaos" / "chaos.log").read_text()
    assert not left_behind()


@pytest.mark.long
def test_a_worker_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    """Seed 17 cuts off one worker for 5.9 s, longer than its session lasts."""
    need_namespaces()
    words = "--kill workers --partition --every 200ms --faults 1 --seed 17"
    chaos(tmp_path, 300_000, words, skipped="--partition is skipped, because")
    [fault] = json.loads((tmp_path / "summary.json").read_text())["faults"]
    assert (fault["target"], fault["fault"], fault["count"]) == ("workers", "partition", 1)
    assert not left_behind()
