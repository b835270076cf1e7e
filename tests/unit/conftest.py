from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.adapters import waits
from millwheel.launch.certificates import make_set


@pytest.fixture(autouse=True)
def nothing_is_waited_for() -> Iterator[None]:
    """The waits of a process are shared by all that is in it: none is left for the next test."""
    yield
    waits.forget()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The security folder of this pipeline."""
    return make_set(str(tmp_path_factory.mktemp("sets") / "ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The security folder of another pipeline, with another CA and another token."""
    return make_set(str(tmp_path_factory.mktemp("sets") / "theirs"))
