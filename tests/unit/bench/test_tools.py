"""``bench --list`` shows everything that can be run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.parts import PARTS
from bench.paths import PEERS
from bench.tools import TOOLS

BENCH = Path(__file__).parents[3] / "bench"
WITHIN = {"__main__", "injector_process", "seen_process", "state_process"}
"""What others start as a process of its own."""


def test_the_list_has_every_part_and_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert shown == PARTS.keys() | TOOLS.keys()


def test_every_program_of_the_folder_is_a_tool() -> None:
    programs = {
        ".".join(path.relative_to(BENCH).with_suffix("").parts)
        for path in BENCH.rglob("*.py")
        if PEERS not in path.parents and "\ndef main(" in path.read_text(encoding="utf-8")
    }
    assert programs - WITHIN == {tool.module.removeprefix("bench.") for tool in TOOLS.values()}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_has_a_module(name: str) -> None:
    assert importlib.util.find_spec(TOOLS[name].module) is not None
