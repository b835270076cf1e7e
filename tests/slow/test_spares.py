"""Spares and standbys in real processes: one that owns nothing follows a worker that is killed, and
is followed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from millwheel.adapters.coordination import open_coordination
from millwheel.control.roots.root import read_run
from tests.slow.runs import Run
from tests.slow.test_ranges import CALLBACK, PIPELINE, Tool, check_rows, rows

pytestmark = [pytest.mark.slow, pytest.mark.alone]

FOLLOWED = PIPELINE.replace("output: numbered", "output: numbered\n    standby: 1").replace(
    "output: totals", "output: totals\n    standby: 1"
)


def start(folder: Path, pipeline: str) -> Run:
    (folder / "ranges.yaml").write_text(pipeline)
    (folder / "counting.py").write_text(CALLBACK)
    run = Run(
        folder / "ranges.yaml", folder, {"out": str(folder / "out")}, more=("--spares", "1")
    ).start()
    return run.until_reading()


def kill(run: Run, slot: str) -> None:
    (process,) = [
        each
        for each in run.processes("millwheel.engine.workers")
        if f"--slot {slot[1:]} " in " ".join(each.cmdline())
    ]
    process.kill()


class Joined:
    """The workers that are members, by slot."""

    def __init__(self, run: Run) -> None:
        known = read_run(run.root)
        assert known is not None
        self.slots: set[str] = set()
        self.session = open_coordination(known.zookeeper, "ranges", security=known.security)
        self.session.watch_members("workers", self._changed)

    def _changed(self, found: Mapping[str, bytes]) -> None:
        self.slots = {name.partition("-")[0] for name in found}


def check_what_follows(run: Run, tool: Tool) -> None:
    """Let the new owners make some output, and look at all of it."""
    folder = run.folder / "out" / "numbered"
    before = len(rows(folder))
    tool.until("the new owners work", lambda: len(rows(folder)) > before + 3_000)
    check_rows(run)


def test_a_spare_gets_what_a_killed_worker_had_and_nothing_moves_back(tmp_path: Path) -> None:
    run = start(tmp_path, PIPELINE)
    tool, joined = Tool(run), Joined(run)
    for _ in range(2):
        tool.until("all three are members", lambda: len(joined.slots) == 3)
        serving = tool.owners("")
        assert len(serving) == 2
        (spare,) = {"w0", "w1", "w2"} - serving
        victim, other = sorted(serving)
        kill(run, victim)
        tool.until("it is not a member", lambda victim=victim: victim not in joined.slots)  # type: ignore[misc]
        tool.until(
            "the spare follows", lambda other=other, spare=spare: tool.owners("") == {other, spare}
        )  # type: ignore[misc]
    joined.session.close()
    check_what_follows(run, tool)


def test_a_standby_takes_over_what_a_killed_worker_had_without_replay(tmp_path: Path) -> None:
    run = start(tmp_path, FOLLOWED)
    tool = Tool(run)
    serving = tool.owners("")
    (spare,) = {"w0", "w1", "w2"} - serving
    victim, other = sorted(serving)
    log = run.root / "logs" / f"worker-{spare[1:]}.log"
    lost = {
        row[0]
        for node in ("counting", "totals")
        for row in tool.shards(node)
        if row[3].startswith(victim)
    }
    assert lost

    def said(pattern: str) -> dict[str, str]:
        """What the spare's log says of each shard."""
        return dict(re.findall(pattern, log.read_text()))

    tool.until("all are followed", lambda: lost <= said(r"Shard (\S+) of (\S+) is followed").keys())
    kill(run, victim)
    tool.until("the spare follows", lambda: tool.owners("") == {other, spare})
    taken = r"Shard (\S+) is taken over by its standby at commit (\d+)"
    tool.until("it has opened all", lambda: lost <= said(taken).keys())
    check_what_follows(run, tool)
    assert said(taken).keys() == lost
    assert (
        not lost
        & said(r"Shard (\S+) is restored to commit (\d+); [1-9]\d* commits are replayed").keys()
    )
