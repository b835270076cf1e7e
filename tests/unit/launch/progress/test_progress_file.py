from __future__ import annotations

from pathlib import Path

from millwheel.core.pipeline.cluster_view import ClusterView, NodeView
from millwheel.launch.progress.progress_file import INTERVAL_S, Noting, read_progress
from tests.unit.launch.progress.test_summary import graph


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
