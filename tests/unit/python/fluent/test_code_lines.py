"""Mistakes are named with the line of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_every_computation_knows_the_line_of_its_call(check: Any, tmp_path: Path) -> None:
    found = check("hits.map('x')\n\nhits.key_by('a').filter('y')\n").computations
    assert [each.where for each in found] == [f"{tmp_path}/p.py:5", f"{tmp_path}/p.py:7"]


def test_a_call_in_another_file_is_named_there(problems: Any, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("def add(stream):\n    stream.map('x =', name='far')\n")
    (found,) = problems("from more import add\nadd(hits)\n")
    assert found.startswith("more.py:2: computations.far.map: column")
