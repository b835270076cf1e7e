"""The contract of what a root can be: a folder, a disk in memory, a prefix in an object store."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millwheel.adapters.spaces.durable import TEMPORARY
from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.buckets import BUCKETS, BucketServer


@pytest.fixture(params=("memory", "posix", *BUCKETS))
def space(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectSpace:
    if request.param not in ("memory", "posix"):
        server: BucketServer = request.getfixturevalue(request.param)
        server.fail()
        return server.space()
    made = (
        FolderSpace("/root", MemoryDisk())
        if request.param == "memory"
        else FolderSpace(str(tmp_path))
    )
    made.prepare(made.root)
    return made


@pytest.fixture
def folder(space: ObjectSpace) -> str:
    space.prepare(f"{space.root}/a")
    return f"{space.root}/a"


def test_a_name_is_given_once(space: ObjectSpace, folder: str) -> None:
    assert space.create(f"{folder}/x", b"first")
    assert not space.create(f"{folder}/x", b"second")
    assert space.get(f"{folder}/x") == b"first"
    assert space.exists(f"{folder}/x")


def test_creating_the_same_again_is_the_same_creation(space: ObjectSpace, folder: str) -> None:
    assert space.create(f"{folder}/x", b"put-id 1")
    assert space.create(f"{folder}/x", b"put-id 1")


def test_of_many_that_want_a_name_one_gets_it(space: ObjectSpace, folder: str) -> None:
    won: list[int] = []
    barrier = threading.Barrier(6)

    def claim(number: int) -> None:
        barrier.wait()
        if space.create(f"{folder}/x", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [space.get(f"{folder}/x")]


_CLAIMER = """
import sys
from millwheel.adapters.durable_store import open_space
root, me, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
space = open_space(root)
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    if space.create(f"{root}/raced/{number}", f"{me} {number}".encode()):
        print(number, flush=True)
"""


@pytest.mark.slow
def test_of_several_processes_that_want_a_name_one_gets_it_also_if_one_is_killed(
    space: ObjectSpace, tmp_path: Path
) -> None:
    if isinstance(space, FolderSpace) and not isinstance(space.files, PosixFiles):
        pytest.skip("its disk is in the memory of one process")
    space.prepare(f"{space.root}/raced")
    count, names = 60, ("a", "b", "c")
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMER, space.root, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for each in claimers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in claimers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    assert claimers[0].stdout is not None
    said = claimers[0].stdout.readline()  # it has begun, or it is through without a name
    claimers[0].kill()
    won = {
        name: each.communicate(timeout=120)[0].split()
        for name, each in zip(names, claimers, strict=True)
    }
    won["a"] = [*said.split(), *won["a"]]
    found = {number: space.get(f"{space.root}/raced/{number}").decode() for number in range(count)}
    for name in names:
        mine = [str(number) for number, content in found.items() if content == f"{name} {number}"]
        # A process that was killed may have created one more than it could say.
        assert won[name] == mine or (name == "a" and won[name] == mine[:-1])
    assert (
        sum(len([c for c in found.values() if c.startswith(f"{name} ")]) for name in names) == count
    )
    # a process that was killed may also have left what it was writing
    made = [each for each in space.names(f"{space.root}/raced") if not each.startswith(TEMPORARY)]
    assert sorted(made, key=int) == [str(number) for number in range(count)]


def test_what_is_missing_is_said_to_be_missing(space: ObjectSpace, folder: str) -> None:
    assert not space.exists(f"{folder}/x")
    assert space.names(f"{space.root}/nothing") == []
    space.delete(f"{folder}/x")
    with pytest.raises(FileNotFoundError):
        space.get(f"{folder}/x")


def test_names_are_those_directly_in_a_folder(space: ObjectSpace, folder: str) -> None:
    space.prepare(f"{folder}/deep")
    space.prepare(f"{space.root}/ab")
    for name in ("a/x", "a/y", "a/deep/z", "ab/w"):
        assert space.create(f"{space.root}/{name}", name.encode())
    assert sorted(space.names(folder)) == ["deep", "x", "y"]
    space.delete(f"{folder}/x")
    assert sorted(space.names(folder)) == ["deep", "y"]
    assert space.create(f"{folder}/x", b"anew")


def test_more_names_than_a_store_lists_at_once(space: ObjectSpace, folder: str) -> None:
    if isinstance(space, FolderSpace) and not isinstance(space.files, PosixFiles):
        pytest.skip("a listing in memory has no pages")
    if space.kind() == "az":
        pytest.skip("a page has 5,000 names, which take too long to create")
    names = [f"{number:08d}.log" for number in range(20 if space.kind() == "gs" else 1100)]
    for name in names:
        space.create(f"{folder}/{name}", b"")
    assert sorted(space.names(folder)) == names


def test_a_folder_is_claimed_once_and_shows_nothing_of_it(space: ObjectSpace, folder: str) -> None:
    assert not space.claimed(f"{folder}/w1")
    assert space.claim(f"{folder}/w1")
    assert not space.claim(f"{folder}/w1")
    assert space.claimed(f"{folder}/w1")
    assert space.names(f"{folder}/w1") == []
    assert space.names(folder) == ["w1"]


@pytest.mark.parametrize("size", [0, 1000, 20_000_000])
def test_files_go_there_and_come_back(space: ObjectSpace, tmp_path: Path, size: int) -> None:
    if isinstance(space, FolderSpace) and not isinstance(space.files, PosixFiles):
        pytest.skip("its files are not those of this machine")
    space.prepare(f"{space.root}/a")
    data = bytes(range(250)) * (size // 250)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    for immutable in (True, False):
        key = f"{space.root}/a/{immutable}"
        held = space.put_file(str(source), key, immutable=immutable)
        assert Path(held).read_bytes() == data == space.get(key)
        space.fetch_file(key, str(target))
        assert target.read_bytes() == data
        target.unlink()
        if space.share_file(key, str(target)):
            assert target.read_bytes() == data
            target.unlink()
        else:
            assert not isinstance(space, FolderSpace)
    with pytest.raises(FileNotFoundError):
        space.fetch_file(f"{space.root}/a/none", str(target))
    assert not target.exists()
