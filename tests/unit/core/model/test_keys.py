from __future__ import annotations

import enum
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.keys import (
    Key,
    check_key,
    key_bytes,
    key_from_bytes,
    key_hash,
    key_hashes,
    stored_key,
)
from millwheel.errors import RecordError

KEYS = st.recursive(
    st.one_of(st.text(), st.integers(-(2**63), 2**64 - 1), st.binary()),
    lambda parts: st.lists(parts, max_size=4).map(tuple),
    max_leaves=6,
)


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@given(KEYS)
def test_a_key_comes_back_from_its_bytes(key: Any) -> None:
    assert check_key(key) == key
    assert key_from_bytes(key_bytes(key)) == key


@given(KEYS)
def test_the_hash_is_the_xxh3_of_the_canonical_bytes(key: Any) -> None:
    assert key_hash(key) == xxhash.xxh3_64_intdigest(key_bytes(key))


@given(st.lists(KEYS))
def test_many_keys_are_hashed_as_one_is(keys: list[Any]) -> None:
    assert list(key_hashes(keys)) == list(map(key_hash, keys))


@given(KEYS, KEYS)
def test_keys_are_equal_in_memory_exactly_when_they_are_on_disk(one: Any, other: Any) -> None:
    assert (one == other) == (key_bytes(one) == key_bytes(other))


def test_lists_become_tuples_at_any_depth() -> None:
    assert check_key(["a", [1, [b"x"]]]) == ("a", (1, (b"x",)))


@pytest.mark.parametrize("bad", [1.0, True, {"a": 1}, {1}, object(), ("a", 1.5), ["a", [False]]])
def test_what_is_no_key_is_refused_with_a_remedy(bad: Any) -> None:
    with pytest.raises(RecordError, match="use str, int, bytes or a tuple"):
        check_key(bad)


def test_no_value_is_told_as_a_missing_key() -> None:
    with pytest.raises(RecordError, match="missing key"):
        check_key(None)


@pytest.mark.parametrize("wide", [2**64, -(2**63) - 1, ("a", 2**70)])
def test_an_integer_wider_than_64_bits_is_refused(wide: Any) -> None:
    with pytest.raises(RecordError, match="64 bits"):
        check_key(wide)


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(RecordError, match="Unicode"):
        check_key("\ud800")


@pytest.mark.parametrize(
    ("given", "plain"), [(Colour.RED, "red"), (Level.HIGH, 3), (("a", Level.HIGH), ("a", 3))]
)
def test_a_key_of_a_derived_type_becomes_the_plain_value(given: Any, plain: Any) -> None:
    key = check_key(given)
    assert key == plain
    assert key_from_bytes(key_bytes(key)) == plain
    assert type(key) is type(plain)


@given(KEYS)
def test_keys_lie_on_disk_in_the_order_of_their_hashes(key: Key) -> None:
    assert stored_key(key) == key_hash(key).to_bytes(8, "big") + key_bytes(key)
