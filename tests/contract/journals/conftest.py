"""Every test runs in both forms, most on both kinds of disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.files import PosixFiles
from tests.contract.journals.world import FORMS, World, memory_world


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=("memory", "posix"))
def world(request: pytest.FixtureRequest, form: str, tmp_path: Path) -> World:
    return memory_world(form) if request.param == "memory" else World(str(tmp_path), PosixFiles(), form)


@pytest.fixture
def memory(form: str) -> World:
    return memory_world(form)
