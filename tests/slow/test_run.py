from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from tests.slow.runs import EXAMPLES, Run, ads_events, rows_of

pytestmark = pytest.mark.slow

EVENTS = 300_000


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ads_events(tmp_path_factory.mktemp("ads"), EVENTS)


def ads(tmp_path: Path, events: Path, launcher: str = "processes", *more: str) -> Run:
    params = {"input": str(events), "output": str(tmp_path / "out")}
    return Run(EXAMPLES / "ads" / "pipeline.yaml", tmp_path, params, launcher, more=more)


def assert_right(run: Run, events: Path) -> None:
    assert run.code == 0, run.said
    sys.path.insert(0, str(EXAMPLES / "ads"))
    try:
        from check import compare  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
        sys.modules.pop("check", None)
    assert compare(events, run.folder / "out" / "ctr") == 0
    lines = events.read_bytes().count(b"\n")
    summary = run.summary
    assert summary["records_in"] == lines
    ids = duckdb.execute(
        "select count(*), count(distinct event_id) from read_json(?)", [str(events)]
    ).fetchone()
    assert ids is not None
    assert 0 < summary["duplicates"] <= ids[0] - ids[1]
    assert summary["late"] > 0
    assert summary["dead_letters"] == 0
    billed = rows_of(run.folder / "out" / "over_budget")
    assert len({row["client_id"] for row in billed}) == len(billed)


def test_killed_workers_injector_and_master_change_nothing(tmp_path: Path, events: Path) -> None:
    run = ads(tmp_path, events).start().until_reading()
    kinds = (
        "millwheel.engine.workers",
        "millwheel.control.injector",
        "millwheel.engine.workers",
        "millwheel.control.master",
    )
    killed = run.kill_at_random(kinds, seed=7, times=8, pause_s=(0.1, 0.6))
    run.wait()
    assert sum(killed.values()) >= 3, run.said
    assert_right(run, events)


@pytest.mark.long
def test_paused_workers_are_replaced_and_change_nothing(tmp_path: Path, events: Path) -> None:
    run = ads(tmp_path, events).start().until_reading()
    for worker in run.processes("millwheel.engine.workers")[:1]:
        worker.send_signal(signal.SIGSTOP)
    paused = run.processes("millwheel.engine.workers")
    time.sleep(6)
    for worker in paused:
        if worker.is_running():
            worker.send_signal(signal.SIGCONT)
    assert_right(run.wait(), events)


def test_a_stopped_run_continues_where_it_stopped_and_a_finished_one_says_so(
    tmp_path: Path, events: Path
) -> None:
    first = ads(tmp_path, events).start().until_reading()
    first.process.send_signal(signal.SIGINT)
    first.wait()
    assert first.code == 0, first.said
    assert "continues" in first.said
    assert not (tmp_path / "summary.json").exists(), (
        "the input was drained before the run could be stopped"
    )
    assert_right(ads(tmp_path, events).start().wait(), events)
    again = ads(tmp_path, events).start().wait(60)
    assert again.code == 0, again.said
    assert "complete already" in again.said
    assert "give a new --root" in " ".join(again.said.split())
    assert again.summary["records_in"] == events.read_bytes().count(b"\n")


def test_a_root_of_another_pipeline_is_refused(tmp_path: Path, events: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "holiday.txt").write_text("not a root")
    run = ads(tmp_path, events).start().wait(60)
    assert run.code == 1
    assert "Traceback" not in run.said


def test_two_files_are_judged_each_by_its_own_progress(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    base = 1_767_225_600_000
    rows = {"a": [base, base + 60_000, base + 40_000], "b": [base + 5_000, base + 9_000]}
    for name, stamps in rows.items():
        with (folder / f"{name}.jsonl").open("w") as out:
            for i, ts in enumerate(stamps):
                event = {
                    "event_id": f"{name}{i}",
                    "ad_id": 1,
                    "client_id": 1,
                    "uid": i,
                    "type": "click",
                    "cost": 1.0,
                    "ts": ts,
                }
                out.write(json.dumps(event) + "\n")
    params = {"input": str(folder / "*.jsonl"), "output": str(tmp_path / "out")}
    run = Run(EXAMPLES / "ads" / "pipeline.yaml", tmp_path, params).start().wait(90)
    assert run.code == 0, run.said
    assert run.summary["late"] == 1
    rows_out = rows_of(tmp_path / "out" / "ctr")
    assert sorted((row["window_start"], row["clicks"]) for row in rows_out) == [
        (base * 1000, 3),
        ((base + 60_000) * 1000, 1),
    ]


@pytest.mark.parametrize("example", ["weblog", "zeitgeist"])
def test_the_example_runs_and_its_numbers_are_right(example: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(EXAMPLES / example / "check.py"),
        "--launcher",
        "processes",
        "--fresh",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_bad_lines_are_kept_as_dead_letters_and_counted(tmp_path: Path) -> None:
    good = {
        "event_id": "1",
        "ad_id": 1,
        "client_id": 1,
        "uid": 1,
        "type": "click",
        "cost": 1.0,
        "ts": 1_767_225_600_000,
    }
    far = {**good, "event_id": "2", "ts": 9_767_225_600_000}
    no_key = {name: value for name, value in good.items() if name != "ad_id"} | {"event_id": "3"}
    no_time = {name: value for name, value in good.items() if name != "ts"} | {"event_id": "4"}
    lines = [
        json.dumps(good),
        "{broken",
        json.dumps(far),
        json.dumps(no_key),
        json.dumps(no_time),
        "[1, 2]",
    ]
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(lines) + "\n")
    run = ads(tmp_path, events).start().wait(90)
    assert run.code == 0, run.said
    assert run.summary["records_in"] == 6
    assert run.summary["dead_letters"] == 5
    letters = rows_of(run.root / "dead_letters")
    assert len(letters) == 5
    assert all(letter["reason"] for letter in letters)


def test_a_broken_pipeline_is_refused_with_line_and_field(tmp_path: Path) -> None:
    text = (EXAMPLES / "ads" / "pipeline.yaml").read_text().replace("key: ad_id", "kye: ad_id")
    broken = tmp_path / "broken.yaml"
    broken.write_text(text)
    run = Run(broken, tmp_path, {"input": "x", "output": str(tmp_path / "o")}).start().wait(60)
    assert run.code != 0
    assert "broken.yaml:" in run.said
    assert "kye" in run.said
    assert "Traceback" not in run.said


def test_an_unreachable_zookeeper_is_a_sentence(tmp_path: Path, events: Path) -> None:
    run = ads(tmp_path, events, "processes", "--zookeeper", "127.0.0.1:1/x").start().wait(60)
    assert run.code == 1
    assert "127.0.0.1:1" in run.said
    assert "Traceback" not in run.said


def test_killed_executors_of_spark_change_nothing(tmp_path: Path, events: Path) -> None:
    run = ads(tmp_path, events, "spark").start().until_reading(timeout_s=90)
    killed = run.kill_at_random(
        ("CoarseGrainedExecutorBackend",), seed=3, times=2, pause_s=(0.05, 1.0)
    )
    run.wait(240)
    assert killed["CoarseGrainedExecutorBackend"] >= 1, run.said
    assert_right(run, events)
