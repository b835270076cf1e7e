from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.model.failures import DEAD_LETTER, SHARE, STOP, OnError
from millwheel.spec.parts.on_error import read_on_error
from millwheel.spec.reading.document import parse
from millwheel.spec.reading.problems import Problems
from millwheel.spec.reading.reader import NodeReader


def read(text: str) -> tuple[OnError, list[str]]:
    problems = Problems("p.yaml")
    tree = parse(f"on_error: {text}\n", problems)
    assert tree is not None
    found = read_on_error(NodeReader(problems), tree.value["on_error"])
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


@pytest.mark.parametrize("text", ["ignore", "5", "{stop_above: 100%}", "{stop_above: 5}", "{stop_above: -1%}", "[]"])
def test_what_makes_no_sense_is_told_and_the_default_stays(text: str) -> None:
    policy, [problem] = read(text)
    assert policy == SHARE
    assert problem.startswith("p.yaml:1: on_error")


def test_without_a_word_the_default_counts() -> None:
    assert read_on_error(NodeReader(Problems("p.yaml")), None) == SHARE
