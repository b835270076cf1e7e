from pathlib import Path

from bench.bare_loops import loop, seconds

_LINES = (
    '{"ad_id": 1, "cost": 0.5, "type": "click"}\n{"ad_id": 2, "cost": 1}\n{"ad_id": 1, "cost": 2}\n'
)


def test_a_loop_has_count_and_sum_of_each_key(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(_LINES)
    assert loop([path, path]) == {1: (4, 5.0), 2: (2, 2.0)}


def test_loops_run_at_once_and_the_slowest_counts(tmp_path: Path) -> None:
    short, long = tmp_path / "short.jsonl", tmp_path / "long.jsonl"
    short.write_text(_LINES)
    long.write_text(_LINES * 20_000)
    assert 0 < seconds([[short]]) < seconds([[short], [long]])
