from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.failures import DEAD_LETTER, SHARE, STOP, OnError
from millwheel.core.pipeline.spec import ComputationSpec, StreamSpec
from millwheel.language.spec.parts.computation_fields import ON_ERROR
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader


def read(text: str) -> tuple[OnError, list[str]]:
    problems = Problems("p.yaml")
    tree = parse(f"on_error: {text}\n", problems)
    assert tree is not None
    found = ON_ERROR.value(NodeReader(problems), tree.value["on_error"], None)
    return found, list(problems.found)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("dead_letter", DEAD_LETTER),
        ("stop", STOP),
        ("{stop_above: 5%, of_at_least: 10}", OnError(0.05, 10)),
        ("{of_at_least: 10}", OnError(SHARE.stop_above, 10)),
        ("{stop_above: 0%}", OnError(0.0, SHARE.of_at_least)),
    ],
)
def test_what_is_to_happen_is_read(text: str, policy: Any) -> None:
    assert read(text) == (policy, [])


@pytest.mark.parametrize(
    "text", ["ignore", "5", "{stop_above: 100%}", "{stop_above: 5}", "{stop_above: -1%}", "[]"]
)
def test_what_makes_no_sense_is_told_and_the_default_stays(text: str) -> None:
    policy, [problem] = read(text)
    assert policy == SHARE
    assert problem.startswith("p.yaml:1: on_error")


def test_without_a_word_the_default_counts() -> None:
    assert StreamSpec("s").on_error == ComputationSpec("c", ()).on_error == SHARE
