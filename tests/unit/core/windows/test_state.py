from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.windows.state import (
    WindowState,
    as_state,
    share_of,
    share_tag,
    tag_of,
    window_of,
    without_share,
)
from millwheel.core.windows.windows import Window

COUNTS, TIMES = st.integers(0, 99), st.none() | st.integers(-(2**63), 2**63 - 1)
STATES = st.builds(
    WindowState,
    st.lists(COUNTS),
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    TIMES,
    TIMES,
    TIMES,
    TIMES,
)


@given(STATES)
def test_a_window_comes_back_from_plain_data_as_it_was_stored(state: WindowState) -> None:
    assert as_state(msgspec.msgpack.decode(msgspec.msgpack.encode(state))) == state
    assert as_state(state) is state
    assert as_state(None) is None


def test_a_window_that_an_older_version_stored_has_the_defaults_of_newer_fields() -> None:
    assert as_state([[1], 0, 0, 2]) == WindowState([1], fresh=2)


def test_two_new_windows_share_nothing() -> None:
    one, other = WindowState(0), WindowState(0)
    one.emitted.append(1)
    one.kept.append(2)
    assert (other.emitted, other.kept) == ([], [])


# Tags of window timers: what is built is taken apart again.


@pytest.mark.parametrize("slot", [Window(-60_000_000, 0), 17])
def test_a_tag_with_a_share_says_both_the_window_and_the_share(slot: Window | int) -> None:
    tag = share_tag(slot, 0.995)
    assert share_of(tag) == 0.995
    assert without_share(tag) == tag_of(slot)
    assert window_of(tag) == (slot if isinstance(slot, Window) else None)
    assert share_of(tag_of(slot)) is None


def test_tags_look_as_they_always_did_because_they_are_stored() -> None:
    assert tag_of((0, 60)) == "0,60"
    assert tag_of(7) == "7"
    assert share_tag((0, 60), 0.9) == "0,60%0.9"


@pytest.mark.parametrize("tag", ["", "mine", "a,b", "1,"])
def test_other_tags_name_no_window(tag: str) -> None:
    assert window_of(tag) is None
