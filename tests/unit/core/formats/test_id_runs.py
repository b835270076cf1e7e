"""Runs of ids: what goes in comes out, and a share of the keys is cut out of it."""

from __future__ import annotations

from millwheel.core.formats.id_runs import marks_from, marks_of, run_key, runs_within
from millwheel.core.formats.store_layout import number_from8
from millwheel.core.model.ranges import KeyRange

HEADS = [5, 2**63, 2**64 - 1]
DIGESTS = [bytes(range(n, n + 16)) for n in (0, 100, 7)]


def test_a_mark_is_the_hash_of_the_key_and_the_digest() -> None:
    run = marks_of(HEADS, DIGESTS).tobytes()
    expected = [
        head.to_bytes(8, "big") + digest for head, digest in zip(HEADS, DIGESTS, strict=True)
    ]
    assert run == b"".join(expected)
    assert [mark.tobytes() for mark in marks_from(run)] == expected


def test_runs_lie_in_the_order_of_time_and_number() -> None:
    keys = [run_key(at, number, "n-1") for at in (-60, 0, 60) for number in (0, 1, 300)]
    assert keys == sorted(keys)
    assert (number_from8(keys[1][1:9]), number_from8(keys[1][9:17])) == (-60, 1)


def test_a_share_gets_the_marks_of_its_keys_and_no_empty_run() -> None:
    run = marks_of(HEADS, DIGESTS).tobytes()
    one, two = run_key(60, 1, "n-1"), run_key(120, 2, "n-1")
    entries = [(one, run), (two, run[:24])]
    upper = KeyRange(2**63, 2**64)
    assert list(runs_within(entries, upper)) == [(one, run[24:])]
    assert list(runs_within(entries, KeyRange(0, 2**63))) == [(one, run[:24]), (two, run[:24])]
