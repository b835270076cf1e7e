"""``bench --list`` shows everything that can be run."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.parts import PARTS
from bench.paths import PEERS
from bench.profile import OTHER, STAGES, staged, table
from bench.tools import TOOLS
from tests.sources import sources

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


# profile.py


def test_a_sample_counts_for_the_innermost_stage_that_names_one_of_its_functions() -> None:
    found = staged(
        [
            ("run (runtime.py:1);process_record (mine.py:2)", 3),
            ("run (runtime.py:1);sleep (x.py:1)", 2),
        ]
    )
    assert found == {"the user's callback": 3, "the loop, but for the above": 2}
    assert staged([("main (x.py:1)", 1)]) == {OTHER: 1}


def test_the_most_expensive_stage_is_first_and_small_ones_are_one_row() -> None:
    lines = table(
        Counter({"journal": 30, "gRPC": 168, "RocksDB": 1, "sinks": 1}), 10.0
    ).splitlines()
    assert lines[2:] == [
        "| gRPC | 84% | 8.40 |", "| journal | 15% | 1.50 |", "| stages below 1 % | 1% | 0.10 |",
        "| **all** | | **10.00** |",
    ]  # fmt: skip


def test_stages_name_what_is_there() -> None:
    """A sample in a file that was renamed would count for another stage."""
    files = [path.as_posix() for path in sources()]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources())
    called = {*re.findall(r"\b(\w+)\(", text), *re.findall(r"\.(\w+)\b", text)}
    for name in (name for _, names in STAGES for name in names):
        assert name in called or any(f"/{name}" in path for path in files), name
