from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millwheel.core.formats.journal_segment import (
    GROUP_HEADER_BYTES,
    PUT_ID_BYTES,
    JournalEnd,
    OpenedSegment,
    SegmentHeader,
    SegmentKind,
    decode_entries,
    decode_header,
    decode_sealed_end,
    encode_group,
    encode_header,
    encode_sealed_end,
    find_later_group,
    unpack_end,
    valid_prefix,
)
from millwheel.errors import CorruptionError, InvariantError

HEADER = SegmentHeader("w1-abc", 3, 10, b"p" * PUT_ID_BYTES)
HEAD = encode_header(HEADER)
OPENED = decode_header(HEAD)
GROUPS = st.lists(st.lists(st.binary(max_size=200), max_size=5), max_size=6)


def segment(groups: list[list[bytes]], opened: OpenedSegment = OPENED) -> bytes:
    first = opened.header.first_group
    return HEAD + b"".join(
        encode_group(opened.seed, first + i, group) for i, group in enumerate(groups)
    )


def decoded(data: bytes) -> list[list[bytes]]:
    return [decode_entries(data, body) for body in valid_prefix(data, OPENED).bodies]


# --- headers


def test_a_header_comes_back() -> None:
    assert OPENED.header == HEADER
    assert OPENED.start == len(HEAD)
    seal = SegmentHeader("ü", 2**40, 2**50, bytes(PUT_ID_BYTES), SegmentKind.SEAL)
    assert decode_header(encode_header(seal) + b"more").header == seal


def test_a_cut_header_is_an_error_at_every_length() -> None:
    for length in range(len(HEAD)):
        with pytest.raises(CorruptionError):
            decode_header(HEAD[:length])


def test_a_flipped_header_is_an_error_at_every_bit() -> None:
    for bit in range(len(HEAD) * 8):
        data = bytearray(HEAD)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_header(bytes(data))


def test_a_name_that_is_too_long_is_a_mistake_of_ours() -> None:
    with pytest.raises(InvariantError):
        encode_header(SegmentHeader("x" * 300, 1, 1, bytes(PUT_ID_BYTES)))


# --- groups


@given(GROUPS)
def test_groups_come_back(groups: list[list[bytes]]) -> None:
    data = segment(groups)
    prefix = valid_prefix(data, OPENED)
    assert decoded(data) == groups
    assert (prefix.end, prefix.next_group) == (len(data), 10 + len(groups))
    assert find_later_group(data, OPENED, prefix) == -1


def test_a_segment_cut_at_any_byte_ends_with_its_last_whole_group() -> None:
    groups = [[b"a" * 30, b""], [b"b" * 5], []]
    ends = [len(segment(groups[:n])) for n in range(4)]
    for length in range(len(HEAD), ends[-1] + 1):
        whole = sum(end <= length for end in ends) - 1
        data = segment(groups)[:length]
        assert decoded(data) == groups[:whole]
        assert find_later_group(data, OPENED, valid_prefix(data, OPENED)) == -1


def test_any_flipped_bit_ends_the_prefix_and_a_whole_group_behind_it_is_found() -> None:
    groups = [[b"first", b"x" * 20], [b"second"]]
    data = segment(groups)
    second = len(segment(groups[:1]))
    for bit in range(len(HEAD) * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        prefix = valid_prefix(bytes(damaged), OPENED)
        in_first = bit // 8 < second
        assert decode_all(damaged) == groups[: 0 if in_first else 1]
        assert find_later_group(bytes(damaged), OPENED, prefix) == (second if in_first else -1)


def decode_all(data: bytearray) -> list[list[bytes]]:
    return decoded(bytes(data))


def test_a_stop_ends_the_prefix_at_a_group() -> None:
    groups = [[b"a"], [b"b"]]
    data = segment(groups)
    first = len(segment(groups[:1]))
    assert valid_prefix(data, OPENED, first).end == first
    assert valid_prefix(data, OPENED, first + 1).end == first
    assert valid_prefix(data, OPENED, len(data) + 9).end == len(data)


def test_groups_of_another_segment_or_of_another_number_are_not_ours() -> None:
    other = decode_header(encode_header(SegmentHeader("w1-abc", 3, 10, b"q" * PUT_ID_BYTES)))
    assert decoded(segment([[b"a"]], other)) == []
    assert decoded(HEAD + encode_group(OPENED.seed, 11, [b"a"])) == []


def test_a_group_over_the_limit_is_a_mistake_of_ours() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(InvariantError, match="over the"):
        encode_group(1, 1, [Huge()])


@settings(max_examples=300)
@given(st.binary(max_size=400))
@example(b"\xf7MWg" * 50)
@example(b"\xf7MWg\xff\xff\xff\xff" * 40)
def test_noise_behind_a_header_is_never_a_group_and_never_an_exception(noise: bytes) -> None:
    data = HEAD + noise
    prefix = valid_prefix(data, OPENED)
    assert prefix.end == len(HEAD)
    assert find_later_group(data, OPENED, prefix) == -1


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_noise_is_no_header(noise: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_header(noise)


@settings(max_examples=200)
@given(GROUPS.filter(bool), st.randoms(use_true_random=False))
def test_a_damaged_segment_never_yields_what_was_not_written(
    groups: list[list[bytes]], rng: random.Random
) -> None:
    data = bytearray(segment(groups))
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(HEAD), len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(HEAD), len(data)) :]
    found = decoded(bytes(data))
    assert found == groups[: len(found)]
    find_later_group(bytes(data), OPENED, valid_prefix(bytes(data), OPENED))


def test_many_false_beginnings_take_no_more_than_a_moment() -> None:
    head = b"\xf7MWg" + (1 << 20).to_bytes(4, "little")
    data = HEAD + (head + (11).to_bytes(8, "little") + bytes(8)) * 50_000
    assert find_later_group(data, OPENED, valid_prefix(data, OPENED)) == -1


@given(st.binary(max_size=40))
def test_a_body_that_does_not_add_up_is_an_error(body: bytes) -> None:
    try:
        entries = decode_entries(body, (0, len(body)))
    except CorruptionError:
        return
    assert 4 + 4 * len(entries) + sum(map(len, entries)) == len(body)


# --- ends


@given(
    st.integers(0, 2**22),
    st.integers(0, 2**40 - 1),
    st.integers(0, 2**22),
    st.integers(0, 2**40 - 1),
)
def test_packed_ends_order_as_places_do(a: int, b: int, c: int, d: int) -> None:
    one, two = JournalEnd(a, b), JournalEnd(c, d)
    assert unpack_end(one.packed()) == one
    assert (one < two) == (one.packed() < two.packed())


def test_a_published_end_comes_back_and_any_change_is_found() -> None:
    data = encode_sealed_end("w1", JournalEnd(3, 12345))
    assert decode_sealed_end(data) == JournalEnd(3, 12345)
    for index in range(len(data) - 1):
        with pytest.raises(CorruptionError):
            decode_sealed_end(data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :])
        with pytest.raises(CorruptionError):
            decode_sealed_end(data[:index])


def test_the_head_of_a_group_has_a_fixed_size() -> None:
    assert len(encode_group(1, 1, [])) == GROUP_HEADER_BYTES + 4
