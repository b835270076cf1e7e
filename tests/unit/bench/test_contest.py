from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from bench.contest import Outcome, role_of
from bench.hosts import Hosts, environment
from bench.opened import FirstOpen, last_change


def test_processes_are_told_by_the_module_they_run() -> None:
    assert role_of([sys.executable, "-m", "millwheel.engine.workers", "--slot", "1"]) == "workers"
    assert role_of([sys.executable, "-m", "millwheel", "run", "p.yaml"]) == "driver"
    assert (
        role_of([sys.executable, "-m", "millwheel.launch.launchers.warm_parent"]) == "warm_parent"
    )
    assert role_of([sys.executable, "-c", "pass"]) == ""
    assert role_of(["java", "-m"]) == ""


def test_cores_are_of_a_time_and_do_not_contain_the_start() -> None:
    looks = [(10.0, 2.0), (12.0, 4.0), (14.0, 5.0), (16.0, 9.0)]
    outcome = Outcome(0, None, 6.0, 9.0, 0.0, "", cpu_at=looks)
    assert outcome.cores(11.0, 15.0) == 0.5
    assert outcome.cores(13.0, 15.0) is None, "one look tells nothing"


# hosts.py: How many spares come to be, without the namespaces themselves.


@pytest.mark.parametrize(
    ("hosts", "workers", "spares"),
    [(2, 2, 2), (2, 4, 4), (3, 4, 2), (4, 8, 3), (6, 6, 2), (1, 3, 1)],
)
def test_auto_is_as_many_as_the_hosts_ask_for(hosts: int, workers: int, spares: int) -> None:
    made = Hosts(hosts, 1.0, Path())
    assert made.spares(workers, "auto") == spares
    assert made.spares(workers, "5") == 5
    assert made.step(), "no host is away"


def test_the_environment_of_a_run_has_its_variables_and_the_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ELSE", "kept")
    found = environment({"MORE": "1"}, [Path("/a"), Path("/b")])
    assert (found["MORE"], found["ELSE"], found["PYTHONPATH"]) == ("1", "kept", "/a:/b")


# opened.py


def test_the_clock_starts_when_a_file_is_opened_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    with FirstOpen(tmp_path) as first:
        list(tmp_path.iterdir())
        before, deadline = time.time(), time.monotonic() + 10
        (tmp_path / "input").read_text()
        while first.at is None and time.monotonic() < deadline:
            time.sleep(0.001)
    assert first.at is not None
    assert before <= first.at <= time.time()


def test_what_is_never_opened_has_no_start(tmp_path: Path) -> None:
    with FirstOpen(tmp_path) as first:
        pass
    assert first.at is None


def test_a_new_name_is_the_last_change(tmp_path: Path) -> None:
    assert last_change(tmp_path) is None
    (tmp_path / "hidden").write_text("x")
    written = last_change(tmp_path)
    assert written is not None
    time.sleep(0.02)
    (tmp_path / "hidden").rename(tmp_path / "seen")
    renamed = last_change(tmp_path)
    assert renamed is not None
    assert renamed > written
