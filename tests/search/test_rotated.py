"""Followed files: each line counts once whatever is done to its file, and the search that says so
would notice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.search.rotated.mistakes import MISTAKES
from tests.search.rotated.running import failure, shrunk, world_of
from tests.search.rotated.stories import story


@pytest.mark.parametrize("first", range(50_000, 50_100, 20))
def test_each_line_of_a_followed_file_counts_once(first: int) -> None:
    for seed in range(first, first + 20):
        steps = story(seed)
        if failure(steps):
            fewer = shrunk(steps)
            pytest.fail(
                f"python -m tests.search.rotated --seed {seed}: {failure(fewer)} after {fewer}"
            )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_deliberate_mistake_is_caught(name: str) -> None:
    make, seeds = MISTAKES[name]
    with make():
        assert any(failure(story(seed)) for seed in seeds), f"{name}: not in {seeds}"


def test_what_a_look_costs_does_not_grow_with_files_that_say_nothing() -> None:
    calls = {files: calls_of(files) for files in (20, 400)}
    assert calls[400].total() <= 1.1 * calls[20].total()


def calls_of(files: int) -> Counter[str]:
    """What the system was asked for in ten seconds, in which one file of many gets a line every 100
    ms (listing the folder aside)."""
    with world_of([]) as world:
        for number in range(files):
            world.folder.write(f"old-{number:05d}", "line", 2)
        for _ in range(20):
            world.now += 1_000_000
            world.settle(40 + files // 4)
        world.system.calls.clear()
        for _ in range(100):
            world.folder.write("old-00007", "line", 1)
            world.settle(4)
        assert world.folder.written == len(world.came) == 2 * files + 100
        assert len(world.system.opened) == 1
        return +world.system.calls


def test_a_pause_for_want_of_open_files_is_said_and_ends(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with world_of([]) as world:
        world.system.most = 2
        for number in range(30):
            world.folder.write(f"f{number}", "line", 3)
        for _ in range(90):
            world.now += 500_000
            world.settle(20)
        assert sorted(world.came) == list(range(1, 91))
    said = [message for message in caplog.messages if "Too many open files" in message]
    assert 1 <= len(said) <= 3
