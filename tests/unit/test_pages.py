"""The examples in pages run, are those that tests run, and know every trigger and window."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millwheel
from millwheel.core.windows.trees import NAMES

REPO = Path(__file__).parents[2]
DOCS = REPO / "docs"
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
WINDOWS = (DOCS / "windows.md").read_text(encoding="utf-8")
WINDOW_CODE = _PYTHON.findall(WINDOWS)


@pytest.mark.parametrize(
    "source", WINDOW_CODE, ids=[f"example-{i}" for i in range(len(WINDOW_CODE))]
)
def test_an_example_of_windows_runs(source: str) -> None:
    exec(compile(source, "docs/windows.md", "exec"), {"__name__": "example"})


def test_the_page_of_windows_names_every_trigger() -> None:
    for name in NAMES:
        assert re.search(rf"`{{?{name}\b", WINDOWS), name


def test_the_page_of_windows_names_every_public_window_and_trigger() -> None:
    for name in millwheel.__all__:
        thing = getattr(millwheel, name)
        if (
            getattr(thing, "__module__", "").startswith(
                ("millwheel.core.windows.windows", "millwheel.core.trigger")
            )
            and name != "Window"
        ):
            assert f"`{name}" in WINDOWS, name


JOINS = (DOCS / "joins.md").read_text(encoding="utf-8")
JOIN_CODE = _PYTHON.findall(JOINS)
FILES = dict(re.findall(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", JOINS, re.DOTALL))


def test_the_examples_of_joins_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(JOIN_CODE) == 12
    for example in JOIN_CODE:
        exec(compile(example, "docs/joins.md", "exec"), names)


@pytest.mark.parametrize(
    ("page", "example"),
    [("objects.md", "objects/clicks.yaml"), ("tables.md", "tables/clicks.yaml")],
)
def test_a_page_has_the_example_as_it_is(page: str, example: str) -> None:
    # the first line is for editors
    _, _, text = (REPO / "examples" / example).read_text().partition("\n")
    assert text in (DOCS / page).read_text()
