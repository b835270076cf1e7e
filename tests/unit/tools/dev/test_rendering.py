from __future__ import annotations

import io

from rich.console import Console

from millwheel.tools.dev.rendering import print_trial
from millwheel.tools.dev.stages import Stage, Trial


def test_rows_are_tables_with_short_cells() -> None:
    console = Console(file=io.StringIO(), width=120)
    rows = [{"page": "/", "n": 1}, {"page": "x" * 60, "tags": ["a"]}, 7]
    print_trial(
        Trial([Stage("hits", "files", 3, rows), Stage("none", "sums", 0, [])], ["hits: 1 x odd"]),
        console,
    )
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "hits  3 records  files" in said
    assert "x" * 39 + "…" in said
    assert '["a"]' in said
    assert "none  0 records  sums" in said
    assert "! hits: 1 x odd" in said
