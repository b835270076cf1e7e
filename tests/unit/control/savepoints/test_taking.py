from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.control.savepoints.taking import check_folder, savepoint_folder
from millwheel.errors import SetupError


def test_a_savepoint_is_a_folder_and_no_object_store(tmp_path: Path) -> None:
    assert savepoint_folder(str(tmp_path / "s")) == tmp_path / "s"
    with pytest.raises(SetupError, match="s3://bucket/x is not a folder"):
        savepoint_folder("s3://bucket/x")


def test_its_folder_is_new_or_empty_and_outlives_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    check_folder(tmp_path / "deep" / "new", root)
    check_folder(tmp_path / "deep" / "new", root)
    for folder in (root, root / "inside", tmp_path / "deep" / ".." / "root" / "x"):
        with pytest.raises(SetupError, match="a savepoint must outlive it"):
            check_folder(folder, root)
    (tmp_path / "deep" / "new" / "file").touch()
    with pytest.raises(SetupError, match="is not empty"):
        check_folder(tmp_path / "deep" / "new", root)
    with pytest.raises(SetupError, match="cannot be written to"):
        check_folder(tmp_path / "deep" / "new" / "file", root)
