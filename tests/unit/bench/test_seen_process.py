from pathlib import Path

import pytest

from bench.seen_process import bundle, drawn, figures


def test_the_share_of_copies_is_what_was_asked_for() -> None:
    assert drawn(1_000, 0.0) == list(range(1_000))
    assert 1 - len(set(drawn(20_000, 0.05))) / 20_000 == pytest.approx(0.05, abs=0.01)


def test_records_of_one_number_are_equal_and_others_have_other_ids() -> None:
    found = bundle([3, 4, 3], 10)
    assert found.ids is not None
    assert (found.ids[0], found.keys[0], found.timestamps[0]) == (
        found.ids[2],
        found.keys[2],
        found.timestamps[2],
    )
    assert len(set(found.ids)) == 2


def test_copies_ask_the_store_and_new_ids_do_not(tmp_path: Path) -> None:
    without, with_copies = (
        figures(200_000, 0.0, tmp_path / "a"),
        figures(200_000, 0.5, tmp_path / "b"),
    )
    assert without["missed"] == with_copies["missed"] == 0
    assert without["asked_exactly_percent"] < 1
    assert 10 < with_copies["asked_exactly_percent"] < 60
    assert with_copies["filters_mb_per_million"] > without["filters_mb_per_million"] > 0
