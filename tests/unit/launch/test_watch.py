"""The loop of the driver: what a step notices, and when it ends."""

from __future__ import annotations

import io
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.processes.child import DOING, Remains
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.supervisor import ProcessEnded, Supervisor
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.core.pipeline.graph import ClusterView
from millwheel.engine.workers.bundle.hangs import decode_hang
from millwheel.engine.workers.bundle.work_note import DoingNote, InProgress
from millwheel.errors import BrokenError, SetupError
from millwheel.launch import watch as module
from millwheel.launch.launchers.base import WorkerExit
from millwheel.launch.members import JoinedWorker
from millwheel.launch.progress.line import ProgressLine
from millwheel.launch.watch import GRACE_S, Deaths, Stragglers, Watch
from tests.unit.launch.progress.test_summary import graph, view

RUNNING = ClusterView({name: replace(node, watermark_us=5) for name, node in view().nodes.items()})
DRAINED = view()


class Driver:
    """A watch, and all that it looks at. It is also launcher, services, watcher of the status, and
    failures."""

    def __init__(self, logs: Path) -> None:
        self.said = io.StringIO()
        line = ProgressLine(Console(file=self.said, width=300))
        self.supervisor = Supervisor(line.announce)
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


CRASH = (
    'Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "/p/bad.py", line'
    " 7 in f\n"
)


@pytest.fixture
def notes(tmp_path: Path) -> HangNotes:
    return HangNotes(open_space(str(tmp_path)))


def remains(folder: Path, mark: bytes, lacked_memory: bool = False) -> Remains:
    folder.mkdir()
    DoingNote(str(folder)).put(
        InProgress("work", "work-0", 7, "0", "ff", 500, mark, "record", "'ann'")
    )  # type: ignore[arg-type]
    return Remains((folder / DOING).read_bytes(), lacked_memory)


@pytest.mark.parametrize(
    ("code", "lacked_memory", "of_itself"),
    [
        (-signal.SIGSEGV, False, True),
        (-signal.SIGABRT, False, True),
        (-signal.SIGBUS, False, True),
        (0, False, True),
        (1, False, True),
        (3, False, True),
        (-signal.SIGKILL, True, True),
        (-signal.SIGKILL, False, False),
        (-signal.SIGTERM, True, False),
        (Exit.FENCED, False, False),
        (Exit.HUNG, False, False),
        (Exit.BAD_CONFIG, False, False),
    ],
)
def test_only_what_ended_of_itself_is_noted(
    notes: HangNotes, tmp_path: Path, code: int, lacked_memory: bool, of_itself: bool
) -> None:
    said: list[str] = []
    gone = WorkerExit(0, code, 1.0, CRASH, remains(tmp_path / "scratch", b"mark", lacked_memory))
    assert Deaths(notes, said.append).ended(gone) == of_itself
    found = list(map(decode_hang, notes.read("work").values()))
    assert [(hang.mark, hang.where, hang.records) for hang in found] == [
        (b"mark", "bad.py:7 in f", 500)
    ] * of_itself
    assert len(said) == of_itself


def test_a_death_between_two_bundles_is_no_news_and_one_of_many_records_gets_no_further(
    notes: HangNotes, tmp_path: Path
) -> None:
    said: list[str] = []
    deaths = Deaths(notes, said.append)
    assert not deaths.ended(WorkerExit(0, -signal.SIGSEGV, 1.0))
    assert not notes.read("work")
    assert not deaths.ended(
        WorkerExit(0, -signal.SIGSEGV, 1.0, CRASH, remains(tmp_path / "scratch", b""))
    )
    assert len(notes.read("work")) == 1
    assert said == []


A, B, A2 = JoinedWorker(0, 100), JoinedWorker(1, 200), JoinedWorker(0, 101)


def test_a_member_that_is_gone_has_time_to_end_and_is_then_named_once() -> None:
    stragglers = Stragglers()
    assert stragglers.step(frozenset({A, B}), 0.0) == []
    assert stragglers.step(frozenset({B}), 1.0) == []
    assert stragglers.step(frozenset({B}), 1.0 + GRACE_S - 0.1) == []
    assert stragglers.step(frozenset({B}), 1.0 + GRACE_S) == [A]
    assert stragglers.step(frozenset({B}), 100.0) == []


def test_one_whose_process_ended_after_it_left_is_not_named() -> None:
    stragglers = Stragglers()
    stragglers.step(frozenset({A, B}), 0.0)
    stragglers.step(frozenset({B}), 1.0)
    stragglers.ended(0)
    assert stragglers.step(frozenset({B, A2}), 100.0) == []


def test_one_whose_process_ended_before_it_left_is_not_named_but_its_successor_may_be() -> None:
    stragglers = Stragglers()
    stragglers.step(frozenset({A, B}), 0.0)
    stragglers.ended(0)
    stragglers.step(frozenset({A, B, A2}), 1.0)
    stragglers.step(frozenset({B, A2}), 2.0)
    assert stragglers.step(frozenset({B}), 50.0) == []
    assert stragglers.step(frozenset({B}), 50.0 + GRACE_S) == [A2]


def test_an_outage_in_which_nobody_is_seen_to_leave_names_nobody() -> None:
    stragglers = Stragglers()
    for second in range(0, 1000, 10):
        assert stragglers.step(frozenset({A, B}), float(second)) == []
