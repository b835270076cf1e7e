from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.picture import Picture, picture_of
from tests.unit.tools.explain.test_picture import CODES, SHOP


@pytest.fixture
def shop(tmp_path: Path) -> Picture:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "codes.py").write_text(CODES)
    return picture_of(load_pipeline(tmp_path / "shop.yaml"))
