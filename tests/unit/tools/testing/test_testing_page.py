"""The examples in docs/testing.md run, one after the other, beside the pipeline of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millwheel.testing import PipelineHarness

REPO = Path(__file__).parents[4]
PAGE = (REPO / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`([\w.]+)`[^`\n]*:\n\n```\w+\n(.*?)```", re.DOTALL)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    for name, text in _FILE.findall(readme):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    assert len(EXAMPLES) > 3
    for example in [
        *EXAMPLES,
        *re.findall(
            r"^```python\n(from millwheel.testing.*?)^```", readme, re.DOTALL | re.MULTILINE
        ),
    ]:
        exec(compile(example, "docs/testing.md", "exec"), names)


def test_the_page_knows_every_method_and_option() -> None:
    for name in vars(PipelineHarness):
        if not name.startswith("_") and name not in (
            "close",
            "remembered",
            "units",
            "crashes",
            "now",
        ):
            assert f"`{name}" in PAGE, name
    for option in ("params", "shards", "workers", "crash_every", "crash_at", "run_sources", "now"):
        assert f"`{option}=" in PAGE, option
