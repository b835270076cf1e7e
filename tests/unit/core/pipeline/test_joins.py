"""The pairs of a window that fires again, and which version of a key a record may see."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.joins import (
    Version,
    WindowSide,
    known,
    newer,
    pairs_of,
    pairs_since,
    partners_found,
)
from millwheel.core.pipeline.work import JoinKind

few = st.integers(0, 3)


@given(st.sampled_from(JoinKind), few, few, few, few)
def test_what_has_changed_makes_the_join_of_the_old_that_of_all(
    kind: JoinKind, old_left: int, new_left: int, old_right: int, new_right: int
) -> None:
    lefts: Any = [f"l{n}" for n in range(old_left + new_left)]
    rights: Any = [f"r{n}" for n in range(old_right + new_right)]
    left = WindowSide(lefts[:old_left], lefts[old_left:])
    right = WindowSide(rights[:old_right], rights[old_right:])
    stood = Counter(pairs_of(left.old, right.old, kind))
    gone = Counter(partners_found(left, right, kind))
    assert not gone - stood, "only what stood is taken back"
    whole = Counter(pairs_of(lefts, rights, kind))
    assert stood - gone + Counter(pairs_since(left, right, kind)) == whole


@pytest.mark.parametrize(("at", "expected"), [(19, None), (20, "new"), (21, "new"), (None, "new")])
def test_a_record_sees_nothing_that_was_said_after_it(at: int | None, expected: str | None) -> None:
    assert known(Version(20, "new"), at) == expected
    assert known(None, at) is None


@pytest.mark.parametrize(("at", "expected"), [(19, False), (20, True), (21, True)])
def test_a_version_gives_way_to_what_was_said_after_it(at: int, expected: bool) -> None:
    assert newer(at, Version(20, "v")) is expected
    assert newer(at, None)
