from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.windowing.state import WindowState, as_state, remember_pane, retract_pane
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.windows import Window

COUNTS, TIMES = st.integers(0, 99), st.none() | st.integers(-(2**63), 2**63 - 1)
STATES = st.builds(
    WindowState, st.lists(COUNTS), COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, TIMES, TIMES, TIMES, TIMES
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


@given(st.sampled_from(Timing), st.integers(0, 9), st.booleans(), st.booleans())
def test_the_retraction_of_a_pane_is_that_pane_marked(timing: Timing, index: int, first: bool, last: bool) -> None:
    pane = Pane(
        key="k",
        window=Window(5, 9),
        result={"n": 1},
        timestamp=8,
        timing=timing,
        index=index,
        nonspeculative_index=index,
        is_first=first,
        is_last=last,
    )
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(remember_pane(pane)))
    back = retract_pane("k", stored)
    assert back.retraction
    assert msgspec.structs.replace(back, retraction=False) == pane
