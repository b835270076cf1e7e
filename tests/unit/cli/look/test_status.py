from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from millwheel.cli.look.status import range_words, status, watermark_words
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME
from millwheel.launch.progress.summary import Summary
from millwheel.roots.root import Root


def test_watermarks_are_told_as_times_or_what_they_mean() -> None:
    assert watermark_words(MIN_TIME) == "nothing yet"
    assert watermark_words(MAX_TIME) == "drained"
    assert watermark_words(IDLE_TIME) == "idle"
    assert watermark_words(1_767_225_600_123_456) == "2026-01-01 00:00:00.123Z"
    assert watermark_words(-1_000_000) == "1969-12-31 23:59:59.000Z"
    assert watermark_words(2**62) == f"{2**62} µs"


def test_ranges_are_told_by_the_first_digits_of_their_edges() -> None:
    assert [range_words(keys) for keys in tile(2)] == ["0000…7fff", "8000…ffff"]


def test_a_complete_run_shows_its_summary(tmp_path: Path) -> None:
    root = Root.open(str(tmp_path), "ads")
    root.complete(Summary(7, 1, 0, 0, 0, 1.0, 7.0).to_json())
    root.close()
    said = io.StringIO()
    status(str(tmp_path), Console(file=said, width=200))
    assert "is complete" in said.getvalue()
    assert "7 records in" in said.getvalue()
