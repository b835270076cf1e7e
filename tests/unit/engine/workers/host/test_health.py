"""The measures of a worker's health."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millwheel.engine.queries.health import ErrorShare
from millwheel.engine.workers.host.health import HealthMeasures, memory_share


def test_what_is_measured_are_shares_and_seconds(tmp_path: Path) -> None:
    found = HealthMeasures(lambda: 0.5, str(tmp_path), ErrorShare()).now()
    assert (found.lag_s, found.errors) == (0.5, 0.0)
    assert 0 < found.memory <= 1
    assert 0 <= found.disk <= 1


def test_a_folder_that_is_gone_says_nothing_of_the_disk(tmp_path: Path) -> None:
    assert HealthMeasures(lambda: 0.0, str(tmp_path / "gone"), ErrorShare()).now().disk == 0.0


MB = 1 << 20
OLDER = Path("/sys/fs/cgroup/memory")
TELL = f"""
import sys
from millwheel.engine.workers.host.health import memory_share
sys.stdin.readline()
before = memory_share()
held = bytearray({60 * MB})
held[::4096] = b"x" * len(held[::4096])
print(before, memory_share())
"""


def group(folder: Path, limit: str, used: int, cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 250\ninactive_file {cache}\n")


def told(tmp_path: Path, text: str) -> Path:
    (tmp_path / "own").write_text(text)
    return tmp_path / "own"


def test_the_group_that_is_mounted_in_a_container_is_read_whatever_the_process_is_told(
    tmp_path: Path,
) -> None:
    group(tmp_path, "1000", 650, 400)
    for path in ("/", "/docker/1234", "/../.."):
        assert memory_share(tmp_path, told(tmp_path, f"0::{path}\n")) == 0.25
    assert memory_share(tmp_path, tmp_path / "missing") == 0.25


def test_the_tightest_of_all_groups_around_a_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "yarn", "10000", 7000, 0)
    group(tmp_path / "yarn" / "container", "1000", 500, 0)
    assert memory_share(tmp_path, told(tmp_path, "0::/yarn/container\n")) == 0.7


def test_without_a_limit_there_is_no_share(tmp_path: Path) -> None:
    own = told(tmp_path, "3:cpu:/a\n0::/a\n")
    assert memory_share(tmp_path, own) is None
    group(tmp_path / "a", "max", 650, 400)
    assert memory_share(tmp_path, own) is None
    # more than any machine has: the older kind says so
    group(tmp_path / "a", str(1 << 62), 650, 400)
    assert memory_share(tmp_path, own) is None


@pytest.fixture
def limited() -> Iterator[Path]:
    """A group of the kernel with a limit of 200 MB."""
    folder = OLDER / f"millwheel-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made here: {error}")
    (folder / "memory.limit_in_bytes").write_text(str(200 * MB))
    yield folder
    folder.rmdir()


def test_a_process_in_a_group_of_the_kernel_finds_its_limit(limited: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    (limited / "cgroup.procs").write_text(str(child.pid))
    said, _ = child.communicate("\n")
    before, after = map(float, said.split())
    assert before < 0.1  # what a process had before it came in is not moved
    assert 0.3 <= after - before < 0.35
