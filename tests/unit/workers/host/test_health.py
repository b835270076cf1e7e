"""The measures of a worker's health."""

from __future__ import annotations

from pathlib import Path

from millwheel.queries.peers.health import ErrorShare
from millwheel.workers.host.health import HealthMeasures


def test_what_is_measured_are_shares_and_seconds(tmp_path: Path) -> None:
    found = HealthMeasures(lambda: 0.5, str(tmp_path), ErrorShare()).now()
    assert (found.lag_s, found.errors) == (0.5, 0.0)
    assert 0 < found.memory <= 1
    assert 0 <= found.disk <= 1


def test_a_folder_that_is_gone_says_nothing_of_the_disk(tmp_path: Path) -> None:
    assert HealthMeasures(lambda: 0.0, str(tmp_path / "gone"), ErrorShare()).now().disk == 0.0
