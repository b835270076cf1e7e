"""How many processes the kernel has killed for lack of memory, here and in the control groups
around this process.

https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""

from __future__ import annotations

from pathlib import Path

_MOUNTED = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MACHINE = Path("/proc/vmstat")
_WORD = "oom_kill"


def memory_kills(mounted: Path = _MOUNTED, own: Path = _OWN, machine: Path = _MACHINE) -> int:
    """The sum of all counts: it has risen if and only if one of them has. 0 where the system does
    not count."""
    files = [machine]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = (
            (mounted / "memory", "memory.oom_control")
            if controllers
            else (mounted, "memory.events")
        )
        files.append(folder / name)
        for part in Path(path).parts[1:]:
            folder /= part
            files.append(folder / name)
    return sum(map(_count, files))


def _count(file: Path) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(
        int(words[1])
        for line in lines
        if (words := line.split())[:1] == [_WORD] and len(words) == 2
    )
