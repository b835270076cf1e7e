from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from millwheel.core.pipeline.graph import ClusterView, NodeView
from millwheel.errors import SetupError
from millwheel.launch.progress.report import (
    INTERVAL_S,
    Noting,
    read_progress,
    report,
    summary_lines,
)
from millwheel.launch.progress.summary import Summary
from tests.unit.launch.progress.test_summary import graph

SUMMARY = Summary(
    records_in=1000, records_out=10, duplicates=2, late=3, dead_letters=4, seconds=2.0, rate=500.0,
    latency_ms={"p50": 1.25}, outputs={"alerts": "/out/alerts"}, restarts={"worker 0": 2},
)  # fmt: skip


def test_the_words_hold_every_number() -> None:
    text = "\n".join(summary_lines(SUMMARY))
    for part in (
        "1,000 records in",
        "10 out",
        "2 duplicates",
        "3 late",
        "4 dead",
        "2.0 s",
        "500 rec",
        "p50 1.2",
        "/out/alerts",
    ):
        assert part in text
    assert "worker 0 2" in text


def test_an_empty_run_has_words_too() -> None:
    assert summary_lines(Summary(0, 0, 0, 0, 0, 0.0, 0.0))


def test_the_summary_is_written_as_json(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    report(SUMMARY, console, str(tmp_path / "new" / "summary.json"))
    assert json.loads((tmp_path / "new" / "summary.json").read_text()) == SUMMARY.to_json()
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be written"):
        report(SUMMARY, console, str(tmp_path / "file" / "summary.json"))


def test_the_summary_so_far_is_noted_now_and_then(tmp_path: Path) -> None:
    noting = Noting(tmp_path, "visits", graph(), lambda: {"worker 1": 2}, 5.0)
    noting.step(None, 1.0)
    assert read_progress(tmp_path) is None
    for count, at_s in ((3, 10.0), (4, 10.0 + INTERVAL_S / 2)):
        noting.step(
            ClusterView(
                {"source.hits": NodeView("source.hits", 0, True, "", {"records_in": count})}
            ),
            at_s,
        )
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.summary.records_in, found.summary.restarts) == (3, {"worker 1": 2})
    assert found.text.startswith("visits: 3 records")


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_bytes(b"{")
    assert read_progress(tmp_path) is None
