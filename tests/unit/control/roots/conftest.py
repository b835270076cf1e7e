from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.control.roots.test_shipping import CODE, PIPELINE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "helpers").mkdir(parents=True)
    (folder / "mine.yaml").write_text(PIPELINE)
    (folder / "counting.py").write_text(CODE)
    (folder / "helpers" / "__init__.py").write_text("")
    (folder / "helpers" / "numbers.py").write_text("ONE = 1\n")
    (folder / "words.txt").write_text("small")
    (folder / "test_counting.py").write_text("import counting")
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").write_text("")
    (folder / "env" / "lib.py").write_text("")
    (folder / ".hidden.py").write_text("")
    (folder / "root").mkdir()
    (folder / "root" / "state.py").write_text("")
    monkeypatch.setenv("LIMIT_OF_TEST", "41")
    return folder
