"""The windows of a join leave the columns key by key, and the records of a key stay together, in
order."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch, key_column, key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.pairs import AT, JoinWindows, Pairing, encoded
from millwheel.core.columns.state import columns_to_rows
from millwheel.core.columns.state.columns_to_rows import Leaving, is_among, where
from millwheel.core.model.keys import Key, key_bytes
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.work import JoinKind
from millwheel.core.windows.windows import Tumbling

bundles = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=6)


def batch_of(keys: list[int], first: int = 0, form: str = "int") -> ColumnBatch:
    frame = pl.DataFrame(
        {"ad": keys, "who": list(map(str, keys))}, {"ad": pl.Int64, "who": pl.String}
    )
    fields = {"int": ["ad"], "str": ["who"], "both": ["ad", "who"]}[form]
    stamps = np.arange(first, first + len(keys))
    return ColumnBatch(
        "shown", np.array([], np.int64), stamps, key_column([frame[name] for name in fields]), frame
    )


def leaving_of(
    given: list[list[int]], form: str, some_encoded: bool
) -> tuple[Leaving, JoinWindows, Pairing, int]:
    names = {"int": ("ad",), "str": ("who",), "both": ("ad", "who")}[form]
    pairing = Pairing(("shown", "clicked"), ({}, {}), names, JoinKind.INNER, Tumbling(1000))
    windows, arrived = JoinWindows(pairing, fan=3), 0
    for number, keys in enumerate(given):
        frame = pairing.taken(batch_of(keys, arrived, form))
        assert frame is not None
        arrived += len(keys)
        windows.add(encoded(frame) if some_encoded and number % 2 else frame)
    return Leaving(windows), windows, pairing, arrived


@pytest.mark.parametrize("form", ["int", "str", "both"])
@given(before=bundles, since=bundles, some_encoded=st.booleans())
@settings(max_examples=15, deadline=None)
def test_all_records_leave_once_those_of_a_key_together_and_in_order(
    form: str, before: list[list[int]], since: list[list[int]], some_encoded: bool
) -> None:
    found, windows, pairing, arrived = leaving_of(before, form, some_encoded)
    gone: list[tuple[Key, int]] = []
    number = arrived
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_to_rows, "PART_RECORDS", 4)
        for keys in [*since, *[[]] * 20]:
            left = {key for key, _ in gone}
            batch = batch_of(keys, number, form)
            number += len(keys)
            [stay] = found.stays([batch])
            kept = where(batch, stay)
            assert isinstance(kept, ColumnBatch)
            assert not left & set(key_list(kept.keys))
            if len(kept):
                frame = pairing.taken(kept)
                assert frame is not None
                windows.add(frame)
            if part := found.next_part():
                left_over = pairing.merge([each.groups for each in part])
                gone += zip(encoded(left_over)[KEY].to_list(), left_over[AT].to_list(), strict=True)
    assert not windows
    assert found.next_part() == []
    places = {key: [at for other, at in gone if other == key] for key, _ in gone}
    assert all(stamps == sorted(set(stamps)) for stamps in places.values())
    assert {at for _, at in gone} >= set(range(arrived))


def test_what_is_cut_is_stored_under_its_number_and_what_is_gone_is_deleted() -> None:
    found, windows, _, _ = leaving_of([[1, 2], [2, 3]], "int", False)
    windows.take_changes()
    assert found.taken_out([pl.Series([2])])
    changes = windows.take_changes()
    assert (changes.gone, [(segment.number, segment.groups.height) for segment in changes.new]) == (
        [],
        [(0, 1), (1, 1)],
    )
    assert found.taken_out([pl.Series([1])])
    assert found.taken_out([pl.Series([3])])
    changes = windows.take_changes()
    assert (sorted(changes.gone), changes.new) == ([0, 1], [])


def test_what_is_cut_and_then_gone_in_one_bundle_is_deleted() -> None:
    found, windows, _, _ = leaving_of([[1, 2]], "int", False)
    windows.take_changes()
    for key in (2, 1):
        assert found.taken_out([pl.Series([key])])
    changes = windows.take_changes()
    assert (changes.gone, changes.new) == ([0], [])


def test_keys_are_found_in_whichever_form_they_are() -> None:
    rows = Batch("shown", [], [1, 2, 3], [1, "1", (1, "1")], [b"", b"", b""], None, 0)
    pair = batch_of([1], form="both").keys
    for others, among in (([pl.Series([1])], [True, False, False]), ([pair], [False, False, True])):
        assert is_among(columns_to_rows.keys_of(rows), others).tolist() == among
    assert is_among(pl.Series(["1", "2"]), [pl.Series([key_bytes("2")])]).tolist() == [False, True]
    assert is_among(pair, [pl.Series([1]), pair]).tolist() == [True]
