from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats.store_layout import (
    STATE,
    TIMER,
    Meta,
    Position,
    after,
    decode_meta,
    decode_position,
    encode_meta,
    key_prefix,
    number8,
    number_from8,
    pack,
    parse_timer,
    timer_key,
    unpack,
)
from millwheel.core.model.keys import key_bytes, key_from_bytes, key_hash
from millwheel.core.model.records import Domain

EDGES = [
    0,
    1,
    127,
    128,
    255,
    256,
    65535,
    65536,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
SIGNED = [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)]
SIZES = [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536]
KEYS = st.recursive(
    st.one_of(st.text(max_size=40), st.integers(-(2**63), 2**64 - 1), st.binary(max_size=40)),
    lambda parts: st.lists(parts, max_size=4).map(tuple),
    max_leaves=6,
)


def check_parsing(key: Any, domain: Domain, tag: str) -> None:
    store_key = timer_key(key, key_hash(key), domain, tag)
    assert store_key.startswith(TIMER + key_hash(key).to_bytes(8, "big"))
    found, found_domain, found_tag = parse_timer(store_key)
    assert (key_from_bytes(found), found_domain, found_tag) == (key, domain, tag)


@given(KEYS, st.sampled_from(Domain), st.text(max_size=8))
def test_a_timer_is_read_as_it_was_stored(key: Any, domain: Domain, tag: str) -> None:
    check_parsing(key, domain, tag)


@pytest.mark.parametrize("number", EDGES + SIGNED)
def test_timers_of_every_width_of_integer_are_read(number: int) -> None:
    check_parsing(number, Domain.EVENT, "t")
    check_parsing((number, "x"), Domain.PROCESSING, "")


@pytest.mark.parametrize("size", SIZES)
def test_timers_of_every_width_of_text_bytes_and_tuple_are_read(size: int) -> None:
    check_parsing("ä" + "k" * size, Domain.EVENT, "t")
    check_parsing("k" * size, Domain.EVENT, "t")
    check_parsing(b"e" * size, Domain.EVENT, "t")
    if size < 70_000:
        check_parsing((1,) * size, Domain.EVENT, "t")


def test_what_starts_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="0xc1"):
        parse_timer(b"t" + bytes(8) + b"\xc1")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_the_order_of_eight_bytes_is_that_of_the_numbers(numbers: list[int]) -> None:
    assert [number_from8(data) for data in sorted(map(number8, numbers))] == sorted(numbers)


@given(KEYS, KEYS)
def test_the_places_of_two_keys_never_run_into_each_other(one: Any, other: Any) -> None:
    mine, theirs = (key_prefix(STATE, key, key_hash(key)) for key in (one, other))
    assert key_bytes(one) == key_bytes(other) or not theirs.startswith(mine)


def test_meta_and_positions_are_read_as_they_were_written() -> None:
    meta = Meta(7, 8, 9, {"late": 3}, -5)
    assert decode_meta(encode_meta(meta)) == meta
    assert decode_position(pack(Position(4, -1, True))) == Position(4, -1, True)


def test_meta_of_a_store_without_a_watermark_is_read_with_none() -> None:
    assert decode_meta(pack([3, 4, 5, {"a": 1}])) == Meta(3, 4, 5, {"a": 1}, -(2**63))


def test_plain_data_is_packed_without_loss() -> None:
    data = {"a": [1, None, b"x", 1.5, True], "b": {}}
    assert unpack(pack(data)) == data


@given(prefix=st.binary(max_size=3), key=st.binary(max_size=4))
def test_the_keys_with_a_prefix_are_those_from_it_to_the_first_one_after(
    prefix: bytes, key: bytes
) -> None:
    end = after(prefix)
    assert key.startswith(prefix) == (key >= prefix and (not end or key < end))
