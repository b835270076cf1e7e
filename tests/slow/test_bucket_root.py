from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_journals, open_snapshots
from tests.fakes.s3_server import S3Server
from tests.slow.runs import Run, ads_events, count_rows, rows_of
from tests.slow.test_run import ads, assert_right
from tests.slow.test_savepoints import CODE, OLD, Clicks, done, pipeline
from tests.slow.waits import until

pytestmark = pytest.mark.slow


def test_a_root_in_an_object_store_survives_kills_with_the_same_rows(
    s3: S3Server, tmp_path: Path
) -> None:
    s3.fail()
    events = ads_events(tmp_path, 400_000)
    place = s3.root()
    run = ads(tmp_path, events)
    run.place = place
    run.start().until_reading()
    killed = run.kill_at_random(
        ("millwheel.engine.workers", "millwheel.control.master"),
        seed=3,
        times=3,
        pause_s=(0.05, 0.3),
    )
    run.wait()
    assert killed["millwheel.engine.workers"] >= 1, run.said
    assert_right(run, events)
    assert open_journals(place).form.value == "create"
    snapshots = open_snapshots(place)
    names = s3.space(place).names(f"{place}/snapshots")
    assert any(snapshots.latest(name) for name in names) or not names


@pytest.mark.long
def test_a_run_stops_with_a_savepoint_and_goes_on_from_it_both_in_an_object_store(
    s3: S3Server, tmp_path: Path
) -> None:
    s3.fail()
    clicks, out = Clicks(tmp_path / "input"), tmp_path / "out"
    params = {"input": str(tmp_path / "input"), "output": str(out)}
    text = pipeline(tmp_path / "old", OLD, CODE)
    saved = str(tmp_path / "saved")
    clicks.grow(500)
    for name, more, ending in (
        ("a", (), ("--savepoint", saved)),
        ("b", ("--from-savepoint", saved), ("--drain",)),
    ):
        (tmp_path / name).mkdir()
        run = Run(text, tmp_path / name, params, workers=1, more=more, place=s3.root()).start()
        try:
            until(lambda: count_rows(out / "numbers") == len(clicks.rows), run)
            done("stop", *ending, "--root", run.place, folder=run.folder)
            assert run.wait(60).code == 0, run.said
        finally:
            run.end()
        assert name == "a" or open_snapshots(run.place).shards()
        assert (len(rows_of(out / "minutes")) == len(clicks.per(60))) is (name == "b")
        clicks.grow(0 if name == "b" else 200)
    numbers = Counter((row["user"], row["count"]) for row in rows_of(out / "numbers"))
    users = Counter(row["user"] for row in clicks.rows)
    assert numbers == Counter(
        {(user, n): 1 for user, count in users.items() for n in range(1, count + 1)}
    )
