"""The examples in docs/joins.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[4] / "docs" / "joins.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
FILES = dict(re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL))


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_head = {
        "again.yaml",
        "changing.yaml",
        "join.yaml",
        "regular.yaml",
        "several.yaml",
        "three.yaml",
        "within.yaml",
        "enrich.yaml",
    }
    own = {"head.yaml", "auctions.yaml", "tables.yaml", "broadcast.yaml", "copies.yaml"}
    assert set(FILES) == own | of_head
    for name, text in FILES.items():
        head = FILES["head.yaml"] if name in of_head else ""
        (tmp_path / name).write_text(head + text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    assert len(EXAMPLES) == 12
    for example in EXAMPLES:
        exec(compile(example, "docs/joins.md", "exec"), names)
