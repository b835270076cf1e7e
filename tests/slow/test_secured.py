from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.launch.certificates import make_set
from tests.slow.test_run import ads, ads_events, assert_right

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("launcher", ["processes", pytest.param("spark", marks=pytest.mark.long)])
def test_a_secured_run_survives_the_death_of_a_worker(tmp_path: Path, launcher: str) -> None:
    folder = make_set(str(tmp_path / "security"))
    events = ads_events(tmp_path, 400_000)
    run = (
        ads(tmp_path, events, launcher, "--security", str(folder))
        .start()
        .until_reading(timeout_s=90)
    )
    killed = run.kill_at_random(("millwheel.engine.workers",), seed=3, times=2, pause_s=(0.05, 0.3))
    assert_right(run.wait(), events)
    assert killed["millwheel.engine.workers"] > 0
