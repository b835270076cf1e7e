from pathlib import Path

from bench.watermarks import frames, measure


def test_every_range_reports_once_in_frames_of_a_bounded_size() -> None:
    found = frames(range(12_001), 7)
    sizes = [len(frame.nodes[0].reports) for frame in found]
    assert sizes == [5_000, 5_000, 2_001]
    reports = [report for frame in found for report in frame.nodes[0].reports]
    assert len({report.shard for report in reports}) == 12_001
    assert {report.watermark_us for report in reports} == {7}


def test_a_small_service_is_filled_and_asked(tmp_path: Path) -> None:
    found = measure(100, tmp_path)
    assert found.correct
    assert found.metrics["all_ms"] > 0
    assert found.metrics["one_p99_ms"] >= found.metrics["one_ms"] > 0
