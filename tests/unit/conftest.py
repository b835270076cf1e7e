from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.launch.certificates import make_set


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The security folder of this pipeline."""
    return make_set(str(tmp_path_factory.mktemp("sets") / "ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The security folder of another pipeline, with another CA and another token."""
    return make_set(str(tmp_path_factory.mktemp("sets") / "theirs"))
