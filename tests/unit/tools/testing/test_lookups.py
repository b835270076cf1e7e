from __future__ import annotations

import pytest

from millwheel.core.pipeline.work import LookupSpec
from millwheel.errors import PipelineError
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
