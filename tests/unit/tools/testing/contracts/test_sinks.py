"""The contract of all sinks holds for files."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.base import Sink
from millwheel.connect.sinks.files import sink as files_module
from millwheel.connect.sinks.files.sink import build_files
from millwheel.testing.contracts import Outside, SinkContract, SinkWorld, WatchedClient
from millwheel.tools.testing.contracts.worlds import IDENTITY
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.unit.connect.sinks.files.test_sink import visible

CALLS = [name for name in vars(Files) if not name.startswith("_")]


class FilesWorld(SinkWorld):
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        build_files({"path": "/out"}, "/", self.disk).check(IDENTITY)

    def sink(self, outside: Outside) -> Sink:
        files: Any = WatchedClient(self.disk, outside, CALLS)
        return build_files({"path": "/out"}, "/", files)

    def rows(self) -> list[Any]:
        return visible(self.disk)

    def lost(self) -> Exception:
        return OSError(errno.EIO, "the disk is away")


class TestSmallFiles(SinkContract):
    """Their rows lie in the journal."""

    def world(self) -> SinkWorld:
        return FilesWorld()


class TestLargeFiles(SinkContract):
    """Their rows lie in hidden files."""

    @pytest.fixture(autouse=True)
    def _large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files_module, "SMALL_BYTES", -1)

    def world(self) -> SinkWorld:
        return FilesWorld()
