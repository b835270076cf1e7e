import time
from pathlib import Path

from bench.opened import FirstOpen, last_change


def test_the_clock_starts_when_a_file_is_opened_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("x")
    with FirstOpen(tmp_path) as first:
        list(tmp_path.iterdir())
        before, deadline = time.time(), time.monotonic() + 10
        (tmp_path / "input").read_text()
        while first.at is None and time.monotonic() < deadline:
            time.sleep(0.001)
    assert first.at is not None
    assert before <= first.at <= time.time()


def test_what_is_never_opened_has_no_start(tmp_path: Path) -> None:
    with FirstOpen(tmp_path) as first:
        pass
    assert first.at is None


def test_a_new_name_is_the_last_change(tmp_path: Path) -> None:
    assert last_change(tmp_path) is None
    (tmp_path / "hidden").write_text("x")
    written = last_change(tmp_path)
    assert written is not None
    time.sleep(0.02)
    (tmp_path / "hidden").rename(tmp_path / "seen")
    renamed = last_change(tmp_path)
    assert renamed is not None
    assert renamed > written
