from pathlib import Path

import pytest

from bench.failover_seen import Line, Silence, Struck, lines, longest_gap, silence, spread
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import tile

LOWER, UPPER = tile(2)
LOW = next(key for key in range(99) if key_hash(key) < LOWER.hi)
HIGH = next(key for key in range(99) if key_hash(key) >= LOWER.hi)


def row(at: float, key: int, pid: int) -> Line:
    return at, [(key, pid, at)]


def test_a_range_is_silent_until_somebody_else_has_output_for_it() -> None:
    seen = [
        row(9.0, LOW, 2),
        row(10.5, LOW, 1),
        row(11.0, HIGH, 2),
        row(12.0, LOW, 2),
        row(13.0, LOW, 2),
    ]
    assert silence(seen, Struck(10.0, frozenset({1}), (LOWER,)), 20.0) == Silence(2.0, 2.0)
    assert silence(seen, Struck(10.0, frozenset({1}), (LOWER, UPPER)), 20.0) == Silence(1.0, 2.0)


def test_a_range_that_never_spoke_again_is_told() -> None:
    assert silence(
        [row(11.0, LOW, 2)], Struck(10.0, frozenset({1}), (LOWER, UPPER)), 20.0
    ) == Silence(1.0, None)
    assert silence([row(21.0, LOW, 2)], Struck(10.0, frozenset({1}), (LOWER,)), 20.0) == Silence(
        None, None
    )
    assert spread([None]) == "never | never | never"
    assert spread([1.0, None, 3.0]) == "1.00 | 3.00 | 3.00 (1 never)"


def test_the_longest_gap_counts_both_ends() -> None:
    assert longest_gap([row(1.0, LOW, 1), row(1.5, LOW, 1)], 0.0, 4.0) == 2.5
    assert longest_gap([], 0.0, 4.0) == 4.0


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(b"[2.0,[[1,2,0.5]]]\n[3.0,[[1,2\n[1.0,[[3,4,0.5]]]\n")
    assert [at for at, _ in lines(tmp_path)] == pytest.approx([1.0, 2.0])
