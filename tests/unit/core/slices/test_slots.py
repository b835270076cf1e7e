"""Slots: as every client of Redis Cluster computes them, and the hashes that begin with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import KeyRange, tile
from millwheel.core.slices.merge_cache import MOST_BYTES, MergedSpans
from millwheel.core.slices.slots import (
    SLOTS,
    WIDTH,
    key_text,
    slot_hash,
    slot_of,
    slot_of_key,
    slot_stored_key,
    slots_within,
)


@pytest.mark.parametrize(
    ("text", "slot"),
    [(b"123456789", 0x31C3), (b"foo", 12182), (b"hello", 866), (b"", 0), (b"a{foo}b{bar}", 12182)],
)
def test_slots_are_those_of_redis_cluster(text: bytes, slot: int) -> None:
    assert slot_of(text) == slot


def test_empty_braces_and_braces_that_do_not_close_are_hashed_with_the_rest() -> None:
    assert slot_of(b"{}foo") != slot_of(b"foo")
    assert slot_of(b"{foo") != slot_of(b"foo")


def test_text_and_number_of_the_same_digits_lie_in_one_slot_but_not_at_one_hash() -> None:
    assert slot_of_key(42) == slot_of_key("42") == slot_of(b"clicks:{42}:3h")
    assert slot_hash(42) != slot_hash("42")
    assert key_text(("a", 1)) == b'["a",1]'


@given(st.one_of(st.text(max_size=20), st.integers(-(2**63), 2**64 - 1), st.binary(max_size=20)))
def test_a_hash_begins_with_the_slot_of_its_key(key: str | int | bytes) -> None:
    hashed = slot_hash(key)
    assert hashed // WIDTH == slot_of_key(key)
    assert hashed % WIDTH == key_hash(key) // SLOTS
    assert slot_stored_key(key)[:8] == hashed.to_bytes(8, "big")


def test_ranges_are_ranges_of_slots() -> None:
    assert [slots_within(piece) for piece in tile(4)] == [
        (0, 4095),
        (4096, 8191),
        (8192, 12287),
        (12288, 16383),
    ]
    assert slots_within(KeyRange(1, WIDTH)) == (1, 0)  # its first hash belongs to the range before


# merge_cache.py

SPAN, OTHER = (0, 10), (0, 20)


def test_what_is_kept_is_found_by_key_and_span_until_the_key_changes() -> None:
    spans = MergedSpans()
    assert not spans
    spans.keep(b"a", SPAN, ({"n": 1}, 5), 40)
    spans.keep(b"a", OTHER, ({"n": 2}, 5), 40)
    spans.keep(b"b", SPAN, ({"n": 3}, 6), 40)
    assert spans.get(b"a", SPAN) == ({"n": 1}, 5)
    spans.changed(b"a")
    assert spans.get(b"a", SPAN) is None
    assert spans.get(b"a", OTHER) is None
    assert spans.get(b"b", SPAN) == ({"n": 3}, 6)
    spans.clear()
    assert not spans


def test_large_results_are_not_kept() -> None:
    spans = MergedSpans()
    spans.keep(b"a", SPAN, ({"n": "x" * 10_000}, 5), 10_000)
    assert spans.get(b"a", SPAN) is None


def test_all_are_forgotten_beyond_the_bound() -> None:
    spans = MergedSpans()
    for number in range(MOST_BYTES // 400 + 100):
        key = number.to_bytes(8, "big")
        spans.keep(key, SPAN, ({"n": 1}, 5), 40)
        assert spans.get(key, SPAN) is not None
        if number % 2:
            spans.changed(key)
    assert 0 < len(spans) < MOST_BYTES // 400
    for number in range(MOST_BYTES // 400 + 100):
        spans.changed(number.to_bytes(8, "big"))
    assert (len(spans), spans._bytes) == (0, 0)
