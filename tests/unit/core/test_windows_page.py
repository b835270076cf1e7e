"""The examples in docs/windows.md run, and its tables know every trigger and window."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millwheel
from millwheel.core.windows.trees import NAMES

PAGE = (Path(__file__).parents[3] / "docs" / "windows.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("source", EXAMPLES, ids=[f"example-{i}" for i in range(len(EXAMPLES))])
def test_an_example_runs(source: str) -> None:
    exec(compile(source, "docs/windows.md", "exec"), {"__name__": "example"})


def test_the_page_names_every_trigger() -> None:
    for name in NAMES:
        assert re.search(rf"`{{?{name}\b", PAGE), name


def test_the_page_names_every_public_window_and_trigger() -> None:
    for name in millwheel.__all__:
        thing = getattr(millwheel, name)
        if (
            getattr(thing, "__module__", "").startswith(
                ("millwheel.core.windows.windows", "millwheel.core.trigger")
            )
            and name != "Window"
        ):
            assert f"`{name}" in PAGE, name
