"""Every test runs in both forms, most on both kinds of disk and, in the create form, in an object
store."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.spaces.files import PosixFiles
from tests.contract.journals.world import FORMS, World, memory_world, world_on
from tests.fakes.buckets import BUCKETS, BucketServer


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=("memory", "posix", *BUCKETS))
def world(request: pytest.FixtureRequest, form: str, tmp_path: Path) -> World:
    if request.param in ("memory", "posix"):
        return _on_disk(request.param, form, tmp_path)
    if form != "create":
        pytest.skip("an object store has the create form only")
    server: BucketServer = request.getfixturevalue(request.param)
    space = server.space()
    return World(space.root, PosixFiles(), form, space)


@pytest.fixture(params=("memory", "posix"))
def on_disk(request: pytest.FixtureRequest, form: str, tmp_path: Path) -> World:
    """For what is said of file system calls."""
    return _on_disk(request.param, form, tmp_path)


def _on_disk(kind: str, form: str, folder: Path) -> World:
    return memory_world(form) if kind == "memory" else world_on(str(folder), PosixFiles(), form)


@pytest.fixture
def memory(form: str) -> World:
    return memory_world(form)
