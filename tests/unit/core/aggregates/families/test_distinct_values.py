"""Growing sets: exact for all kinds of values, in entries that are written and read only where
something changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.errors import CorruptionError

values = st.one_of(
    st.integers(0, 40),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, 1.0, 2.5, -1.0, 2.0**64]),
    st.text(max_size=2),
    st.binary(max_size=2),
    st.tuples(st.integers(0, 3), st.text(max_size=1)),
)


class Entries:
    """The entries of one value, in a dict."""

    def __init__(self, stored: dict[int, bytes] | None = None) -> None:
        self.stored: dict[int, bytes] = {} if stored is None else stored
        self.kept: set[int] = set()
        self.reads = 0
        self.written = 0

    def read(self, number: int) -> bytes:
        self.reads += 1
        return self.stored[number]

    def write(self, data: bytes) -> int:
        number = max(self.stored, default=0) + 1
        self.stored[number] = data
        self.written += len(data)
        return number

    def keep(self, number: int) -> None:
        self.kept.add(number)

    def sweep(self) -> None:
        self.stored = {number: data for number, data in self.stored.items() if number in self.kept}
        self.kept = set()


def _set_of(found: Any) -> Distinct:
    made = Distinct()
    made.update(found)
    return made


@given(st.lists(st.tuples(st.lists(values, max_size=5), st.booleans()), max_size=8), st.booleans())
def test_what_is_stored_again_is_what_has_come_since(
    steps: list[tuple[list[Any], bool]], apart: bool
) -> None:
    """The bytes of a small set are kept until it changes."""
    found, entries = Distinct(), Entries()
    for added, one_by_one in steps:
        for value in added if one_by_one else ():
            found.add(value)
        if not one_by_one:
            found.update(added)
        stored = found.stored(lambda: entries) if apart else found.whole_form()
        assert (found.stored(lambda: entries) if apart else found.whole_form()) == stored
        assert Distinct.from_stored(stored, lambda: entries) == found


@given(st.lists(st.one_of(st.integers(0, 90), st.text(max_size=2)), max_size=60), st.randoms())
def test_a_small_set_is_sent_in_the_same_bytes_whichever_way_it_came_together(
    found: list[Any], chance: Any
) -> None:
    few = list(dict.fromkeys(found))[:48]
    one, other = Distinct(), _set_of([*few, *few])
    for value in chance.sample(few, len(few)):
        one.add(value)
    assert one.whole_form() == other.whole_form()


@given(st.lists(st.lists(values, max_size=12), max_size=6), st.booleans())
def test_it_counts_what_a_set_counts_however_the_values_come(
    cuts: list[list[Any]], merged: bool
) -> None:
    made, expected = Distinct(), set()
    for cut in cuts:
        expected |= set(cut)
        if merged:
            other = _set_of(cut)
            made.merge(other)
            assert other == _set_of(cut)
        elif len(cut) % 2:
            made.update(cut)
        else:
            for value in cut:
                made.add(value)
        made = Distinct.from_stored(made.whole_form())
        assert len(made) == len(expected)
    assert all(value in made for value in expected)
    assert "never there" not in made
    assert -7.25 not in made or -7.25 in expected


def test_a_large_set_is_stored_in_entries_and_a_change_writes_about_what_it_adds() -> None:
    entries, made = Entries(), _set_of(range(0, 4_000_000, 2))
    head = made.stored(lambda: entries)
    entries.sweep()
    assert len(head) < 1_000
    assert len(entries.stored) > 1
    assert max(map(len, entries.stored.values())) < 1 << 18
    whole, entries.written = entries.written, 0
    made.update(range(1, 200, 2))
    made.stored(lambda: entries)
    entries.sweep()
    assert 0 < entries.written < whole / 100
    entries.written = 0
    made.stored(lambda: entries)
    assert entries.written == 0


def test_only_the_parts_that_are_touched_are_read_and_counting_reads_nothing() -> None:
    entries, made = Entries(), _set_of(range(0, 16_000_000, 2))
    head = made.stored(lambda: entries)
    parts = len(entries.stored)
    later = Distinct.from_stored(head, lambda: Entries(entries.stored))
    reader: Any = later._chunks
    assert (len(later), reader.reads) == (8_000_000, 0)
    later.add(3)
    assert 0 < reader.reads < parts
    later.update([16_000_001])
    assert len(later) == 8_000_002


def test_many_small_changes_leave_few_entries_and_write_each_number_a_few_times() -> None:
    rng = np.random.default_rng(5)
    entries, made, expected = Entries(), Distinct(), set()
    for _ in range(400):
        some = rng.integers(0, 300_000, 700).tolist()
        expected |= set(some)
        made.update(some)
        head = made.stored(lambda: entries)
        entries.sweep()
    assert len(entries.stored) <= 64
    again = Distinct.from_stored(head, lambda: entries)
    assert len(again) == len(made) == len(expected)
    assert set(again._values()[1]) == expected
    assert entries.written < 25 * len(expected)


@pytest.mark.parametrize("spread", [1, 2**40])
def test_sets_that_are_divided_many_times_keep_every_number(spread: int) -> None:
    rng = np.random.default_rng(6)
    numbers = (rng.integers(0, 2**22, 150_000) * spread).tolist()
    entries, made = Entries(), Distinct()
    for start in range(0, len(numbers), 30_000):
        made.update(numbers[start : start + 30_000])
        made = Distinct.from_stored(made.stored(lambda: entries), lambda: entries)
    assert len(made) == len(set(numbers))
    made.update(numbers[:1_000])
    made.add(numbers[5])
    assert len(made) == len(set(numbers))


def test_a_set_that_moves_to_another_value_takes_its_entries_along() -> None:
    before, after = Entries(), Entries()
    head = _set_of(range(0, 3_000_000, 3)).stored(lambda: before)
    made = Distinct.from_stored(head, lambda: before)
    moved = Distinct.from_stored(made.stored(lambda: after), lambda: after)
    before.stored.clear()
    moved.update([1])
    assert len(moved) == 1_000_001


def test_the_dicts_of_earlier_versions_are_sets_of_their_keys() -> None:
    assert Distinct.of({"a": 2, 5: 1, -3: 7}) == _set_of(["a", 5, -3])


def test_damage_is_corruption() -> None:
    good = _set_of(range(50)).whole_form()
    for bad in (b"", b"\xc1", good[:-9], b"\x92\x80\x91\x94\x00\x01\xc4\x03abc\x90"):
        with pytest.raises(CorruptionError):
            Distinct.from_stored(bad)
    with pytest.raises(CorruptionError, match="entries of its own"):
        Distinct.from_stored(_set_of(range(0, 90_000, 7)).stored(Entries))


@given(
    st.lists(values, max_size=30),
    st.lists(st.lists(st.one_of(st.integers(0, 40), values), max_size=6), max_size=20),
    st.booleans(),
)
def test_sets_that_are_merged_together_count_as_one_after_the_other(
    start: list[Any], added: list[list[Any]], stored: bool
) -> None:
    entries = Entries()
    found, expected = _set_of(start), _set_of(start)
    if stored:
        found = Distinct.from_stored(found.stored(lambda: entries), lambda: entries)
    counts = []
    for each in added:
        expected.merge(_set_of(each))
        counts.append(len(expected))
    assert found.merge_each([_set_of(each) for each in added]) == counts
    assert found == expected


def test_a_large_set_in_parts_counts_what_each_of_many_sets_brings() -> None:
    rng, entries = np.random.default_rng(5), Entries()
    found = _set_of(rng.integers(0, 6_000_000, 500_000).tolist())
    found.stored(lambda: entries)
    expected = set(found.values())
    counts = []
    added = [rng.integers(0, 6_000_000, 500).tolist() for _ in range(40)]
    for each in added:
        expected |= set(each)
        counts.append(len(expected))
    assert found.merge_each([_set_of(each) for each in added]) == counts
    assert (
        set(Distinct.from_stored(found.stored(lambda: entries), lambda: entries).values())
        == expected
    )
