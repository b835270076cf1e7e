"""A story is run and judged, and cut down to the steps that matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millwheel.connect.sources.files import rotation
from millwheel.engine.workers.shard.admission import ShardLimits
from tests.search.rotated.folder import FewFiles
from tests.search.rotated.stories import Step, play
from tests.search.rotated.world import World


@contextmanager
def world_of(steps: list[Step]) -> Iterator[World]:
    """A folder of its own, which is removed again."""
    system, right = FewFiles(), rotation.os
    bundle, settle = next((step[1:] for step in steps if step[0] == "limits"), (3, 0))
    rotation.os = system  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            world = World(
                Path(os.path.realpath(folder)), system, ShardLimits(bundle=bundle, settle_us=settle)
            )
            world.start()
            yield world
            if world.shard is not None:
                world.shard.close()
    finally:
        rotation.os = right  # type: ignore[assignment]


def failure(steps: list[Step]) -> str:
    """What is wrong after these steps ("": nothing)."""
    with world_of(steps) as world:
        try:
            play(steps, world)
        except Exception as ex:  # whatever ends the worker is the finding
            return f"{type(ex).__name__}: {ex}"
        twice = sorted(number for number, times in world.came.items() if times > 1)
        lost = sorted(set(range(1, world.folder.written + 1)) - set(world.came) - world.may_miss)
        gone = sum(os.fstat(fd).st_nlink == 0 for fd in world.system.opened)
    if twice:
        return f"lines that came more than once: {twice}"
    if lost:
        return (
            "lines that never came, though nothing that docs/pipeline.md names has met them:"
            f" {lost}"
        )
    return f"{gone} files are open that were deleted" if gone else ""


def shrunk(steps: list[Step]) -> list[Step]:
    """The steps that matter."""
    size = len(steps) // 2
    while size:
        folder = 0
        while folder < len(steps):
            fewer = steps[:folder] + steps[folder + size :]
            if failure(fewer):
                steps = fewer
            else:
                folder += size
        size //= 2
    return steps
