"""The health of this worker: its memory, disk, step and errors.

The memory is that of the container, read from the kernel's control groups. Both hierarchies are
read: version 2 (``memory.max``) and version 1 (``memory.limit_in_bytes``), where those of YARN and
of older systems often are.
https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import psutil

from millwheel.engine.queries.health import ErrorShare, Health

_MOUNTED = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NEWER = ("memory.max", "memory.current", "inactive_file")
_OLDER = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def memory_share(mounted: Path = _MOUNTED, own: Path = _OWN) -> float | None:
    """The used share of the tightest limit that holds for this process, its own or that of a group
    around it, without caches of files, which can be dropped. None: there is no limit below the
    memory of the machine (any thread)."""
    total = psutil.virtual_memory().total
    shares = (_share(folder, names, total) for folder, names in _groups(mounted, own))
    return max((share for share in shares if share is not None), default=None)


def _groups(mounted: Path, own: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Each group that this process is in, from the outermost one, with the names of its files. In a
    container often only its own group is mounted, and the path that the process reads does not
    exist in there."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, names = (mounted / "memory", _OLDER) if controllers else (mounted, _NEWER)
        yield folder, names
        for part in Path(path).parts[1:]:
            folder /= part
            yield folder, names


def _share(folder: Path, names: tuple[str, str, str], total: int) -> float | None:
    limit_name, used_name, cache = names
    try:
        limit = int((folder / limit_name).read_text())
        used = int((folder / used_name).read_text())
        parts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        idle = int(parts[cache])
    except (OSError, ValueError, KeyError):  # "max", or no such group
        return None
    return max(used - idle, 0) / limit if 0 < limit < total else None


@dataclass(frozen=True, slots=True)
class HealthMeasures:
    """``step_s``: how long the step of the loop has taken; ``scratch``: a folder on the disk of
    local stores."""

    step_s: Callable[[], float]
    scratch: str
    errors: ErrorShare

    def now(self) -> Health:
        """The health at this moment (any thread)."""
        return Health(self.step_s(), self.memory(), self._disk(), self.errors.share(monotonic()))

    def memory(self) -> float:
        """The used share of the container's memory where that has a limit, else of the machine's
        (any thread)."""
        share = memory_share()
        return float(psutil.virtual_memory().percent) / 100 if share is None else share

    def _disk(self) -> float:
        try:
            usage = shutil.disk_usage(self.scratch)
        except OSError:  # it goes away when the worker does
            return 0.0
        return 1 - usage.free / usage.total
