"""The pairs of a window that fires again, and which version of a key a record may see."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.joins import (
    Version,
    WindowSide,
    combinations,
    come_since,
    gone_since,
    newer,
    tuples,
    value_at,
)
from millwheel.core.pipeline.work import JoinKind

values = st.lists(st.sampled_from("abc"), max_size=3)
sides = st.builds(WindowSide, values, values, values)


@given(st.sampled_from(JoinKind), sides, sides)
def test_what_has_changed_makes_the_join_of_the_old_that_of_all(
    kind: JoinKind, left: WindowSide, right: WindowSide
) -> None:
    check_changes(kind, [left, right])


@given(
    st.sampled_from([JoinKind.INNER, JoinKind.LEFT, JoinKind.OUTER]),
    st.lists(sides, min_size=3, max_size=4),
)
def test_so_it_does_for_several_streams(kind: JoinKind, several: list[WindowSide]) -> None:
    check_changes(kind, several)


def check_changes(kind: JoinKind, sides: list[WindowSide]) -> None:
    stood = Counter(combinations([[*side.gone, *side.stay] for side in sides], kind))
    gone = Counter(tuples(gone_since(sides, kind)))
    assert not gone - stood, "only what stood is taken back"
    whole = Counter(combinations([[*side.stay, *side.come] for side in sides], kind))
    assert stood - gone + Counter(tuples(come_since(sides, kind))) == whole


@pytest.mark.parametrize(
    ("kind", "left", "right", "expected"),
    [
        ("inner", "ab", "x", ["ax", "bx"]),
        ("inner", "ab", "", []),
        ("left", "ab", "", ["a-", "b-"]),
        ("left", "", "x", []),
        ("right", "", "xy", ["-x", "-y"]),
        ("right", "a", "", []),
        ("outer", "a", "", ["a-"]),
        ("outer", "", "x", ["-x"]),
        ("outer", "", "", []),
        ("semi", "ab", "xy", ["a-", "b-"]),
        ("semi", "ab", "", []),
        ("anti", "ab", "", ["a-", "b-"]),
        ("anti", "ab", "x", []),
    ],
)
def test_a_join_of_two(kind: str, left: str, right: str, expected: list[str]) -> None:
    found = combinations([left, right], JoinKind(kind))
    assert ["".join(each or "-" for each in row) for row in found] == expected


def test_a_join_of_three() -> None:
    def of(kind: str, *sides: str) -> list[str]:
        rows = combinations(sides, JoinKind(kind))
        return ["".join(each or "-" for each in row) for row in rows]

    assert of("inner", "ab", "x", "12") == ["ax1", "ax2", "bx1", "bx2"]
    assert of("inner", "ab", "x", "") == of("left", "", "x", "1") == []
    assert of("left", "a", "", "12") == ["a-1", "a-2"]
    assert of("outer", "", "x", "") == ["-x-"]


@pytest.mark.parametrize(("at", "expected"), [(19, None), (20, "new"), (21, "new"), (None, "new")])
def test_a_record_sees_nothing_that_was_said_after_it(at: int | None, expected: str | None) -> None:
    assert value_at(Version(20, "new"), at) == expected
    assert value_at(None, at) is None


@pytest.mark.parametrize(("at", "expected"), [(19, False), (20, True), (21, True)])
def test_a_version_gives_way_to_what_was_said_after_it(at: int, expected: bool) -> None:
    assert newer(at, Version(20, "v")) is expected
    assert newer(at, None)
