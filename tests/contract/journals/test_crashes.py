"""The journals port: whoever dies, or loses power, at any step, loses nothing that was acked."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.journals.world import World, memory_world
from tests.fakes.faulty_files import FaultyFiles, Killed, kill_at


def test_a_writer_that_dies_at_any_step_loses_nothing_acked(world: World) -> None:
    total = _life_calls(world)
    for number in range(total):
        incarnation = f"w{number}"
        acked, sent = _live(world, world.faulty(kill_at(number)), incarnation)
        end = world.journals().seal(incarnation)
        found = world.read(incarnation, end)
        assert found[: len(acked)] == acked
        assert found == sent[: len(found)]


def _live(world: World, files: FaultyFiles, incarnation: str) -> tuple[list[bytes], list[bytes]]:
    """A short life of a worker: (what was acked, what was sent), over several segments."""
    acked: list[bytes] = []
    sent: list[bytes] = []
    with suppress(Killed):
        writer = world.journals(files, segment_bytes=250).create(incarnation)
        for number in range(6):
            entry = b"entry %d " % number + bytes(60)
            sent.append(entry)
            writer.commit([entry])
            acked.append(entry)
    return acked, sent


def _life_calls(world: World) -> int:
    files = world.faulty()
    _live(world, files, "other")
    return files.calls


def test_a_power_cut_at_any_step_loses_nothing_acked(form: str) -> None:
    total = _life_calls(memory_world(form))
    for number in range(total):
        for seed in range(4):
            world = memory_world(form)
            acked, sent = _live(world, FaultyFiles(world.files, before=kill_at(number)), "w1")
            assert isinstance(world.files, MemoryDisk)
            world.files.crash(choose=partial(random.Random(seed).randint, 0))
            end = world.journals().seal("w1")
            found = world.read(upto=end)
            assert found[: len(acked)] == acked
            assert found == sent[: len(found)]


def test_a_power_cut_while_sealing_keeps_the_end_that_was_returned(form: str) -> None:
    world = memory_world(form)
    _live(world, FaultyFiles(world.files), "w1")
    end = world.journals().seal("w1")
    before = world.read(upto=end)
    assert isinstance(world.files, MemoryDisk)
    world.files.crash()
    assert world.journals().seal("w1") == end
    assert world.read(upto=end) == before
