from pathlib import Path

from bench.watermarks import measure


def test_a_small_service_is_filled_and_asked(tmp_path: Path) -> None:
    found = measure(100, tmp_path)
    assert found.correct
    assert found.metrics["all_ms"] > 0
    assert found.metrics["one_p99_ms"] >= found.metrics["one_ms"] > 0
