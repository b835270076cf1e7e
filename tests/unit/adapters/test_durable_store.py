from __future__ import annotations

import sys
from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_journals, open_snapshots, open_space
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.errors import SetupError


def test_a_path_is_a_folder_and_journals_and_snapshots_lie_in_it(tmp_path: Path) -> None:
    assert isinstance(open_space(str(tmp_path)), FolderSpace)
    open_journals(str(tmp_path)).create("w1").close()
    (tmp_path / "scratch").mkdir()
    assert open_snapshots(str(tmp_path), str(tmp_path / "scratch" / "x")).latest("s-0") is None  # type: ignore[arg-type]
    assert (tmp_path / "journal" / "w1").is_dir()


def test_an_object_store_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(
        SetupError, match=r"need the package obstore; .*pip install 'millwheel-spark\[s3\]'"
    ):
        open_space("s3://bucket/prefix").names("s3://bucket/prefix")
