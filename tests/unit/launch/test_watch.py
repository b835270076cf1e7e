"""The loop of the driver: what a step notices, and when it ends."""

from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from millwheel.adapters.processes.supervisor import ProcessEnded, Supervisor
from millwheel.core.pipeline.cluster_view import ClusterView
from millwheel.errors import BrokenError, SetupError
from millwheel.launch import watch as module
from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.progress.line import ProgressLine
from millwheel.launch.stragglers import GRACE_S, JoinedWorker
from millwheel.launch.watch import Watch
from tests.unit.launch.progress.test_summary import graph, view

RUNNING = ClusterView({name: replace(node, watermark_us=5) for name, node in view().nodes.items()})
DRAINED = view()


class Driver:
    """A watch, and all that it looks at. It is also launcher, services, watcher of the status, and
    failures."""

    def __init__(self, logs: Path) -> None:
        self.said = io.StringIO()
        line = ProgressLine(Console(file=self.said, width=300))
        self.supervisor = Supervisor(line.say)
        self.started: list[str] = []
        for name in ("worker 0", "master"):
            self.supervisor.keep(name, lambda name=name: self.started.append(name))  # type: ignore[misc]
        self.gone: list[WorkerExit] = []
        self.over: list[ProcessEnded] = []
        self.killed: list[tuple[int, int]] = []
        self.latest: ClusterView | None = None
        self.workers: frozenset[JoinedWorker] = frozenset()
        self.judged: list[bool] = []
        self.broken = False
        parts: Any = (graph(), self.supervisor, self, line, logs, self)
        self.watch = Watch("weblog", *parts)

    def exits(self) -> list[WorkerExit]:
        gone, self.gone = self.gone, []
        return gone

    def ended(self) -> list[ProcessEnded]:
        over, self.over = self.over, []
        return over

    def kill(self, slot: int, pid: int) -> bool:
        self.killed.append((slot, pid))
        return True

    def look(self, view: ClusterView | None, now_s: float, at_the_end: bool) -> None:
        self.judged.append(at_the_end)
        if self.broken:
            raise BrokenError("too much failed", "traffic")

    def until_drained(self, *steps: Any, caught_up: Any = lambda view: None) -> ClusterView | None:
        """One of ``steps`` before each step of the loop; then it is stopped."""
        waiting, stop = list(steps), threading.Event()

        def check() -> None:
            if waiting:
                waiting.pop(0)()
            else:
                stop.set()

        me: Any = self
        return self.watch.until_drained(me, me, stop, check, caught_up)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s += 1.0  # between two steps of the loop
        return now_s

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(module, "_STEP_S", 0.0)
    return Driver(tmp_path)


def sets(driver: Driver, **facts: Any) -> Any:
    return lambda: driver.__dict__.update(facts)


def test_it_ends_when_all_input_has_drained(driver: Driver) -> None:
    found = driver.until_drained(
        sets(driver, latest=RUNNING), sets(driver, latest=DRAINED), driver.watch.pass_on_output
    )
    assert found is DRAINED
    assert driver.judged == [False, True], "at the end a failure is not waited for"
    assert "weblog:" in driver.said.getvalue()


def test_it_ends_when_the_run_has_caught_up_with_how_it_stood_then(driver: Driver) -> None:
    stood = ClusterView({})
    assert (
        driver.until_drained(sets(driver, latest=RUNNING), caught_up=lambda view: view and stood)
        is stood
    )
    assert driver.judged == [True]


def test_a_stop_ends_it_without_a_result(driver: Driver) -> None:
    assert driver.until_drained(sets(driver, latest=RUNNING)) is None


def test_who_died_is_started_again_whoever_tells_of_it(driver: Driver) -> None:
    driver.until_drained(
        sets(driver, gone=[WorkerExit(0, -9, 60.0)]),
        sets(driver, over=[ProcessEnded("master", -9, 60.0)]),
        int,
        int,
    )
    assert driver.started == ["worker 0", "master", "worker 0", "master"]
    assert driver.said.getvalue().count("is started again") == 2


def test_who_cannot_live_ends_the_run_with_its_last_words(driver: Driver) -> None:
    with pytest.raises(SetupError, match="no such port"):
        driver.until_drained(*[sets(driver, gone=[WorkerExit(0, 1, 0.0, "no such port")])] * 50)


def test_too_many_failures_end_the_run(driver: Driver) -> None:
    with pytest.raises(BrokenError):
        driver.until_drained(sets(driver, broken=True))


def test_a_worker_that_is_no_member_any_more_but_lives_is_killed_once_it_had_time_to_end(
    driver: Driver,
) -> None:
    member = JoinedWorker(0, 44)
    calm = [int] * (int(GRACE_S) + 3)
    driver.until_drained(
        sets(driver, workers=frozenset({member})), sets(driver, workers=frozenset()), *calm
    )
    assert driver.killed == [(0, 44)]
    assert "declared dead, but it still runs" in driver.said.getvalue()


def test_one_that_ended_is_not_looked_for(driver: Driver) -> None:
    calm = [int] * (int(GRACE_S) + 3)
    ends = sets(driver, workers=frozenset(), gone=[WorkerExit(0, -9, 60.0)])
    driver.until_drained(sets(driver, workers=frozenset({JoinedWorker(0, 44)})), ends, *calm)
    assert not driver.killed


def test_what_workers_print_reaches_standard_output(
    driver: Driver, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    driver.until_drained(lambda: (tmp_path / "worker-0.out").write_bytes(b"1\n2\nhal"))
    assert capfdbinary.readouterr().out == b"1\n2\n"
