from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces import open_journals, open_snapshots
from tests.fakes.s3_server import S3Server
from tests.slow.runs import ads_events
from tests.slow.test_run import ads, assert_right

pytestmark = pytest.mark.slow


def test_a_root_in_an_object_store_survives_kills_with_the_same_rows(s3: S3Server, tmp_path: Path) -> None:
    s3.fail()
    events = ads_events(tmp_path, 60_000)
    place = s3.root()
    run = ads(tmp_path, events)
    run.place = place
    run.start().until_reading()
    killed = run.kill_at_random(("millwheel.workers", "millwheel.master"), seed=3, times=3, pause_s=(0.2, 0.6))
    run.wait()
    assert killed["millwheel.workers"] >= 1, run.said
    assert_right(run, events)
    assert open_journals(place).form.value == "create"
    snapshots = open_snapshots(place)
    names = s3.space(place).names(f"{place}/snapshots")
    assert any(snapshots.latest(name) for name in names) or not names
