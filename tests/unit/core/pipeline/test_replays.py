from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.replays import (
    Again,
    Past,
    ReplayOrder,
    Request,
    RequestedLetter,
    as_key,
    decode,
    encode,
)
from millwheel.errors import CorruptionError

PLAIN: Any = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
TEXT = st.text(max_size=5)
HISTORY = st.lists(st.builds(Past, TEXT, st.integers(0, 9), TEXT), max_size=2)
REQUESTS = st.builds(
    Request,
    TEXT,
    st.lists(
        st.builds(
            RequestedLetter,
            TEXT,
            TEXT,
            TEXT,
            TEXT,
            PLAIN,
            st.none() | st.integers(0, 9),
            PLAIN,
            HISTORY,
        ),
        max_size=2,
    ),
)
ORDERS = st.builds(
    ReplayOrder,
    TEXT,
    st.lists(
        st.builds(Again, TEXT, TEXT, TEXT, PLAIN, st.integers(0, 9), PLAIN, HISTORY, TEXT, TEXT),
        max_size=2,
    ),
)


@given(REQUESTS | ORDERS)
def test_what_was_asked_for_and_ordered_comes_back_as_it_was(what: Any) -> None:
    assert decode(encode(what), type(what)) == what


@given(REQUESTS, st.data())
def test_one_changed_byte_is_damage_and_never_another_order(request: Request, data: Any) -> None:
    good = encode(request)
    index = data.draw(st.integers(0, len(good) - 1))
    bad = good[:index] + bytes([good[index] ^ data.draw(st.integers(1, 255))]) + good[index + 1 :]
    with contextlib.suppress(CorruptionError):
        assert decode(bad, Request) == request


def test_an_order_is_no_request() -> None:
    with pytest.raises(CorruptionError, match="are not a replay of dead letters"):
        decode(encode(ReplayOrder("x", [])), Request)


def test_every_order_has_a_channel_and_a_counter_of_its_own() -> None:
    one, other = ReplayOrder("a", []), ReplayOrder("b", [])
    assert one.channel != other.channel
    assert one.counter != other.counter


def test_a_key_of_several_parts_is_a_tuple_again_however_deep() -> None:
    assert as_key(["a", ["b", 1], 2]) == ("a", ("b", 1), 2)
    assert as_key("plain") == "plain"
