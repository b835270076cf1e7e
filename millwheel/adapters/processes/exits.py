"""The end of a process of a run: its exit code, on which alone the supervisor acts, the line of its
log for people, and whether the kernel kills for lack of memory."""

from __future__ import annotations

import logging
import os
import re
import sys
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

_MOST_CHARS = 300  # of the line: a statement of SQL may be in it
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:,)? in (.+)$', re.MULTILINE)
_ERROR = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning|Panic\w*)\b.*$", re.MULTILINE
)
_LIBRARY = re.compile(r"/lib(64)?/python3|site-packages|/millwheel/engine/workers/")
_NOISE = ("Extension modules:", "Current thread", "Thread 0x", "  File ", "    ")


class Exit(IntEnum):
    """Exit codes of master, injector and workers; anything else, or a signal, is a crash and is
    restarted."""

    STOPPED = 0
    """Asked to stop, and everything acked is durable."""
    BAD_CONFIG = 64
    """No restart can help; the last lines on standard error say why (EX_USAGE)."""
    HUNG = 70
    """User code did not return in time; a note names it, and a fresh incarnation may start at once
    (EX_SOFTWARE)."""
    FENCED = 75
    """A newer owner took over; a fresh incarnation may start at once (EX_TEMPFAIL)."""


def leave(code: int) -> NoReturn:
    """End this process now. Its output is flushed first. The interpreter is not finalized, which
    would take a tenth of a second for nothing. Threads end wherever they are, as when the process
    is killed."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code)


def summary_line(words: str) -> str:
    """The line for people: the error of a native crash with the innermost line of code, else the
    last exception of Python, else the last line; "" for an empty log."""
    lines = [line for line in words.splitlines() if line.strip()]
    fatal = next((line for line in reversed(lines) if line.startswith("Fatal Python error")), "")
    if fatal:
        where = crash_line(words)
        return _cut(fatal.removeprefix("Fatal Python error: ") + (f" at {where}" if where else ""))
    errors = _ERROR.findall(words)
    messages = [line for line in lines if not line.startswith(_NOISE)]
    return _cut(errors[-1] if errors else messages[-1] if messages else "")


def crash_line(words: str) -> str:
    """The innermost line of Python at a native crash, of user code if there is any: ``bad.py:7 in
    process_record``; "" if there was no such crash."""
    start = words.rfind("Fatal Python error")
    frames = _FRAME.findall(words, start) if start >= 0 else []
    theirs = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    return (
        "" if not theirs else f"{theirs[0][0].rpartition('/')[2]}:{theirs[0][1]} in {theirs[0][2]}"
    )


def _cut(line: str) -> str:
    return line.strip()[:_MOST_CHARS]


_MOUNTED = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MACHINE = Path("/proc/vmstat")
_WORD = "oom_kill"


def memory_kills(mounted: Path = _MOUNTED, own: Path = _OWN, machine: Path = _MACHINE) -> int:
    """The number of processes that the kernel has killed for lack of memory, here and in the
    control groups around this process: the sum of all counts, which has risen if and only if one of
    them has. 0 where the system does not count.
    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files"""
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
