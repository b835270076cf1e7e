from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.work import LookupSpec
from millwheel.errors import PipelineError
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.lookups import FakeLookup, fake_lookup
from tests.computations import computation_spec

SPEC = computation_spec(
    "priced", (), ("out",), lookup=LookupSpec("redis", {"url": "redis://h", "key": "item:{item}"})
)


def test_answers_come_from_a_map_or_a_function_by_plain_keys() -> None:
    assert FakeLookup({"tea": 1}, ["item"]).look_up([("tea",), ("owl",)]) == [1, None]
    assert FakeLookup(lambda key: key, ["a", "b"]).look_up([(1, 2)]) == [(1, 2)]


def test_it_is_asked_by_what_the_real_one_is_asked_by() -> None:
    lookup = fake_lookup(SPEC, "", {"priced": {"tea": 1}})
    assert lookup.by == ("item",)


def test_a_test_that_gives_no_answers_is_told_how() -> None:
    with pytest.raises(PipelineError, match=r"lookups=\{'priced': \{key: answer\}\}"):
        fake_lookup(SPEC, "", {})


def test_the_key_that_a_lookup_names_calls_functions_of_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text("def twice(value):\n    return value * 2\n")
    file = tmp_path / "p.yaml"
    file.write_text("""
pipeline: p
functions: {twice: "doubling:twice"}
streams: {a: {source: {injection: {}}, timestamp: at}}
computations:
  x: {input: {a: {key: n}}, output: out,
      enrich: {lookup: {redis: {url: "redis://h", key: "item:{twice(n)}"}}, as: t}}
sinks: {out: {stdout: {}}}
""")
    with PipelineHarness(file, lookups={"x": lambda key: {"asked": key}}) as harness:
        harness.push("a", {"at": 1, "n": 7})
        [found] = harness.read("out")
    assert found["t"] == {"asked": 14}
