from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.windows.state import WindowState, as_state

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
