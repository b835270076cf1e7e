"""The measures of a worker's health."""

from __future__ import annotations

from pathlib import Path

from millwheel.queries.peers.health import ErrorShare
from millwheel.workers.host.health import HealthMeasures


def test_the_limit_of_a_container_counts_and_else_the_memory_of_the_machine(tmp_path: Path) -> None:
    measures = HealthMeasures(lambda: 0.5, str(tmp_path), ErrorShare(), tmp_path)
    assert 0 < measures.now().memory <= 1
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("650\n")
    (tmp_path / "memory.stat").write_text("anon 250\ninactive_file 400\n")
    found = measures.now()
    assert (found.memory, found.lag_s, found.errors) == (0.25, 0.5, 0.0)
    assert 0 <= found.disk <= 1
    (tmp_path / "memory.max").write_text("max\n")
    assert measures.now().memory != 0.25


def test_a_folder_that_is_gone_says_nothing_of_the_disk(tmp_path: Path) -> None:
    assert HealthMeasures(lambda: 0.0, str(tmp_path / "gone"), ErrorShare()).now().disk == 0.0
