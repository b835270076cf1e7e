"""The programs of the tutorial, as they stand on its pages."""

from __future__ import annotations

import re
import runpy
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests import rooms

TUTORIAL = rooms.HOUSE / "docs" / "tutorial"
STEPS = sorted(TUTORIAL.glob("[0-9]-*.md"))
_FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)


def files_of(page: Path, folder: Path) -> list[str]:
    """The files of a page, written to a folder as a reader would do it."""
    found = dict(_FILE.findall(page.read_text(encoding="utf-8")))
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(found)


@pytest.mark.parametrize(
    "page", [step for step in STEPS if "crash()" in step.read_text()], ids=lambda page: page.stem
)
def test_a_program_that_crashes_goes_on(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = files_of(page, tmp_path)
    [program] = [name for name in names if name.startswith("try_")]
    assert f"\npython {program}\n" in page.read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in names:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        for name in names:
            sys.modules.pop(name.removesuffix(".py"), None)
    assert capsys.readouterr().out == "survived\n"


def test_there_are_six_steps_each_leading_to_the_next() -> None:
    assert len(STEPS) == 6
    index = (TUTORIAL / "README.md").read_text()
    for step in STEPS:
        assert f"]({step.name})" in index
    for step, after in pairwise(STEPS):
        assert step.read_text().rstrip().endswith(f"]({after.name})")
