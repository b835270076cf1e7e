from __future__ import annotations

from pathlib import Path

from millwheel.workers.process import clean_scratch


def test_the_scratch_folder_of_a_life_is_there_whatever_was_before(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "slot-1"
    assert clean_scratch(str(folder)) == str(folder)
    assert clean_scratch(str(folder)) == str(folder)
    assert folder.is_dir()
