"""docs/python-api.md: its pipelines are right, and it names all that there is."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import millwheel
from millwheel import Pipeline
from millwheel.language.spec import load_pipeline
from millwheel.python import fluent
from millwheel.python.fluent import pipeline
from millwheel.python.fluent.streams import Flow

PAGE = (Path(__file__).parents[4] / "docs" / "python-api.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HEAD = """\
from millwheel import Computation, FileSink, FileSource, Pipeline, ValueState, agg
p = Pipeline("p")
hits = p.read("hits", FileSource("x.jsonl", "jsonl"), timestamp="ts")
"""
LIMIT = next(block for block in BLOCKS if block.startswith("class Limit"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0][:40])
def test_every_block_is_a_right_pipeline(block: str, tmp_path: Path) -> None:
    whole = block.startswith(("# visits.py", "# load.py"))
    more = (
        "from millwheel import InjectionSource\n" + LIMIT.partition("\n\n\n")[0] + "\n"
        if "Limit," in block
        else ""
    )
    (tmp_path / "visits.py").write_text(block if whole else HEAD + more + block)
    found = load_pipeline(
        tmp_path / "visits.py", {"input": "x.jsonl", "output": "out"} if whole else {}
    )
    assert found.computations or "read(" in block


@pytest.mark.parametrize(
    "name",
    [
        *sorted(set(fluent.__all__) - {"KeyedStream", "Stream", "WindowedStream"}),
        *(name for name in dir(Flow) if not name.startswith("_")),
        *(
            name
            for name in dir(Pipeline)
            if not name.startswith("_")
            and name not in ("code", "millwheel_document", "millwheel_prepare", "name")
        ),
        *("key_by", "trigger", "aggregate", "write"),
    ],
)
def test_the_page_knows_every_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)


def test_all_windows_and_triggers_are_named() -> None:
    for name in millwheel.__all__:
        module = getattr(getattr(millwheel, name), "__module__", "")
        if module.startswith(
            (
                "millwheel.core.windows.windows",
                "millwheel.core.windows.triggers",
                "millwheel.core.windows.combinations",
            )
        ) and name not in (
            "Window",
            "Custom",
        ):
            assert re.search(rf"\b{name}\b", PAGE), name


def test_the_example_of_the_pipeline_class_runs() -> None:
    assert doctest.testmod(pipeline).failed == 0
    assert doctest.testmod(pipeline).attempted > 4
