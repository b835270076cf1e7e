"""A snapshot is published after all that is older, and guarded to the last."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.durable import make_dirs
from millwheel.errors import ConflictError, FencedError, SetupError
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores


class Root:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        make_dirs(self.disk, "/root")
        self.snapshots = FileSnapshots("/root", self.disk)
        self.store = MemoryStores(self.disk, "/local").open("s-0", None)
        self.made = 0

    def publish(self, token: int, commit: int, guard: Any = lambda: None) -> Any:
        self.made += 1
        self.store.apply([(b"k", b"%d" % self.made)], [])
        self.store.checkpoint(f"/local/checkpoint-{self.made}")
        return self.snapshots.publish("s-0", token, commit, f"/local/checkpoint-{self.made}", guard)  # type: ignore[arg-type]


def test_the_latest_is_that_of_the_last_commit_of_the_last_owner() -> None:
    root = Root()
    root.publish(1, 5)
    root.publish(2, 6)
    latest = root.snapshots.latest("s-0")  # type: ignore[arg-type]
    assert latest is not None
    assert (latest.token, latest.last_commit, latest.number, latest.parent) == (2, 6, 2, 1)
    root.snapshots.restore(latest, "/local/again")
    assert MemoryStores(root.disk, "/other").open("s-0", "/local/again").get(b"k") == b"2"


def test_a_former_owner_cannot_publish_after_its_heir() -> None:
    root = Root()
    root.publish(2, 6)
    with pytest.raises(ConflictError):
        root.publish(1, 9)


def test_a_guard_that_objects_in_the_last_moment_leaves_nothing_published() -> None:
    def fenced() -> None:
        raise FencedError("sealed")

    root = Root()
    with pytest.raises(FencedError):
        root.publish(1, 5, fenced)
    assert root.snapshots.latest("s-0") is None  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../x", "", ".x", "a/b"])
def test_a_shard_leads_out_of_no_folder(name: str) -> None:
    with pytest.raises(SetupError):
        Root().snapshots.latest(name)  # type: ignore[arg-type]
