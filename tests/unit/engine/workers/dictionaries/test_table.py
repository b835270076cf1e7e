"""The table of what is known of values, against a plain dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.number_runs import Words, rows_of
from millwheel.engine.workers.dictionaries.table import NEVER, NumberTable

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60)


def _words(pairs: list[tuple[int, int]]) -> tuple[Words, Words]:
    return np.array([low for low, _ in pairs], np.uint64), np.array(
        [high for _, high in pairs], np.uint64
    )


@given(st.lists(PAIRS))
@settings(max_examples=50, deadline=None)
def test_each_value_has_one_row_and_new_ones_are_the_last(
    bundles: list[list[tuple[int, int]]],
) -> None:
    table, known = NumberTable(), dict[tuple[int, int], int]()
    for pairs in bundles:
        rows, fresh = table.take(*_words(pairs))
        new = [pair for pair in dict.fromkeys(pairs) if pair not in known]
        assert {pairs[row] for row in fresh.tolist()} == {*new}
        assert len(fresh) == len(new)
        assert sorted(fresh) == fresh.tolist()
        known |= {pairs[row]: int(rows[row]) for row in fresh.tolist()}
        assert rows.tolist() == [known[pair] for pair in pairs]
        assert [rows[row] for row in fresh] == list(range(len(known) - len(new), len(known)))
    everything = [(low, high) for low in range(42) for high in range(4)]
    assert table.find(*_words(everything)).tolist() == [known.get(pair, -1) for pair in everything]
    assert len(table) == len(known)


def test_it_grows_and_what_is_loaded_is_found() -> None:
    numbers = np.arange(50_000).astype(np.uint64)
    zeros = np.zeros(len(numbers), np.uint64)
    table = NumberTable()
    for start in range(0, len(numbers), 700):
        part = slice(start, start + 700)
        rows, fresh = table.take(numbers[part], zeros[part])
        assert len(fresh) == len(rows)
        table.heads[rows] = numbers[part] * np.uint64(3)
    loaded = NumberTable()
    for start in range(0, len(numbers), 9_000):
        loaded.append(table.rows(slice(start, start + 9_000)))
    loaded.ready()
    for each in (table, loaded):
        assert each.find(numbers, zeros).tolist() == list(range(50_000))
        assert (each.heads == numbers * np.uint64(3)).all()
        assert (each.find(numbers, zeros + np.uint64(1)) == -1).all()
        assert each.size_bytes < 60 * len(numbers) + 2**20


def test_it_grows_beside_its_work_and_finds_everything_meanwhile() -> None:
    table, rng = NumberTable(), np.random.default_rng(1)
    known, between = dict[tuple[int, int], int](), 0
    for asked in (60_000, *[900] * 40, 30_000, *[900] * 40):
        low, high = rng.integers(0, 150_000, asked, np.uint64), rng.integers(0, 2, asked, np.uint64)
        before = len(table)
        rows, fresh = table.take(low, high)
        between += table.grows
        pairs = [*zip(low.tolist(), high.tolist(), strict=True)]
        for pair, row in zip(pairs, rows.tolist(), strict=True):
            assert known.setdefault(pair, row) == row
        assert len(table) == len(known) == before + len(fresh)
        assert table.find(low, high).tolist() == rows.tolist()
    assert between > 3
    everything = _words(list(known))
    assert table.find(*everything).tolist() == list(known.values())
    assert (table.find(everything[0], everything[1] + np.uint64(2)) == -1).all()


def test_what_is_forgotten_is_new_again() -> None:
    table = NumberTable(timed=True)
    numbers = np.arange(5_000).astype(np.uint64)
    rows, _ = table.take(numbers, numbers)
    table.heads[rows] = numbers
    table.seen[rows] = np.arange(5_000) % 10
    gone = table.forget_before(4)
    assert sorted(gone.tolist()) == [number for number in range(5_000) if number % 10 < 4]
    kept = numbers % np.uint64(10) >= 4
    for _ in range(2):  # the second time, they have left the hash table
        rows = table.find(numbers, numbers)
        assert (table.seen[rows[(rows >= 0) & ~kept]] == NEVER).all()
        assert (table.heads[rows[kept]] == numbers[kept]).all()
        assert (table.seen[rows[kept]] == numbers[kept] % np.uint64(10)).all()
        table.take(numbers[:0], numbers[:0])
    assert (rows[~kept] == -1).all()


def test_it_forgets_beside_its_work_and_gives_rows_again() -> None:
    table, rng = NumberTable(timed=True), np.random.default_rng(1)
    seen, between, most = dict[int, int](), 0, 0
    for turn in range(150):
        values = rng.integers(turn * 3_000, turn * 3_000 + 40_000, 4_000).astype(np.uint64)
        rows, fresh = table.take(values, np.zeros_like(values))
        between += table.grows
        table.seen[rows[fresh]] = NEVER
        found = dict(zip(values.tolist(), table.seen[rows].tolist(), strict=True))
        assert found == {value: seen.get(value, NEVER) for value in found}
        assert (table.heads[rows] == values)[table.seen[rows] != NEVER].all()
        table.heads[rows], table.seen[rows] = values, turn
        seen |= dict.fromkeys(found, turn)
        if turn % 3 == 0:
            old = {value for value, at in seen.items() if at < turn - 8}
            assert {*table.forget_before(turn - 8).tolist()} == old
            seen = {value: at for value, at in seen.items() if value not in old}
        assert len(table) == len(seen)
        most = max(most, len(seen))
    assert between > 20
    assert len(table._words.array) < 4 * most  # else rows are not given again
    everything = np.array([*seen], np.uint64)
    assert table.seen[table.find(everything, np.zeros_like(everything))].tolist() == [
        *seen.values()
    ]


def test_rows_are_as_they_are_stored() -> None:
    table = NumberTable()
    rows = rows_of(*(np.array(words, np.uint64) for words in ([5, 6], [7, 8], [9, 10])))
    table.append(rows)
    table.ready()
    assert table.rows(slice(None)).tobytes() == rows.tobytes()
    assert table.rows(np.array([1])).tobytes() == rows.tobytes()[24:]
