"""The examples in docs/pipeline.md are right, and the page knows every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sources.generator import GeneratorOptions
from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.windows.trees import NAMES as TRIGGERS
from millwheel.language.spec.parts import streams, windows
from millwheel.language.spec.parts.computation_fields import COMPUTATION

PAGE = (Path(__file__).parents[4] / "docs" / "pipeline.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
MIGRATION = (Path(__file__).parents[4] / "docs" / "migration.md").read_text(encoding="utf-8")
FROM_SQL = re.findall(r"^\| .* \| `(input: .*)` \|$", MIGRATION, re.MULTILINE)
_STREAMS = ("hits", "clicks", "orders", "events", "alerts", "visits", "payments")
_SOURCES = "".join(f"  {name}: {{source: injection, timestamp: ts}}\n" for name in _STREAMS)


def _complete(example: str) -> str:
    """The example in a pipeline around it."""
    first, _, rest = example.partition("\n")
    lines = "".join(f"    {line}\n" for line in rest.splitlines())
    if first == "# stream":
        return f"pipeline: p\nstreams:\n  a:\n{lines}"
    if first == "# computation":
        return f"pipeline: p\nstreams:\n{_SOURCES}computations:\n  c:\n{lines}"
    if first == "# sinks":
        sources = "".join(
            f"  {name}: {{source: injection, timestamp: ts}}\n" for name in ("alerts", "traffic")
        )
        return f"pipeline: p\nstreams:\n{sources}sinks:\n{lines}"
    return example


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_right_pipeline(check: Any, folder: Path, example: str) -> None:
    (folder / "keys.py").write_text("def by_customer(value): return value['customer']\n")
    assert check(_complete(example)).name in ("p", "weblog")


@pytest.mark.parametrize("fields", FROM_SQL)
def test_what_sql_says_is_a_right_computation_here(check: Any, fields: str) -> None:
    sources = "".join(
        f"  {name}: {{source: injection, timestamp: at}}\n"
        for name in ("orders", "prices", "returns")
    )
    rates = "  rates: {source: injection, timestamp: at, table: {key: item}}\n"
    computation = f"computations:\n  c: {{{fields}, output: out}}\n"
    assert check(f"pipeline: p\nstreams:\n{sources}{rates}{computation}").name == "p"


@pytest.mark.parametrize(
    "word",
    [
        *COMPUTATION.fields,
        *streams.STREAM.fields,
        *(word for kind in windows.KINDS.values() for word in kind.fields),
        *FUNCTIONS,
        *TRIGGERS,
    ],
)
def test_the_page_knows_every_word(word: str) -> None:
    assert re.search(rf"\b{word}\b", PAGE)


@pytest.mark.parametrize("option", ["rate", "keys", "partitions", "seed", "start"])
def test_defaults_of_the_generator_are_as_the_page_says(option: str) -> None:
    [told] = re.findall(
        rf"^\| `{option}` \| `(\S+)` \|",
        PAGE[PAGE.index("### Generator") :][:2000],
        re.MULTILINE,
    )
    assert str(getattr(GeneratorOptions(), option)).removesuffix(".0") == told
