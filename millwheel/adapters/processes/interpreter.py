"""The start of a process of a run: as ``python -m``, but without the current folder on its module
path; and the first thing that each process does.

A program that is started by ``-m`` searches the current folder first. Any file there that has the
name of a library's module (``queue.py``, ``secrets.py``) would be executed in its place, by every
process of a run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from millwheel.adapters.front.limits import raise_limit
from millwheel.adapters.rights import keep_private

_HAS_SAFE_PATH = sys.version_info >= (3, 11)
_WITHOUT_IT = (
    "import sys; del sys.path[0], sys.argv[:2]; import runpy; runpy.run_module(sys.argv[0], None,"
    " '__main__', True)"
)
"""The effect of ``-P``, for a Python that lacks it. The words behind it are ``-m``, the module and
its arguments."""


def module_command(
    module: str, arguments: Sequence[str] = (), python: str = sys.executable
) -> list[str]:
    """The argv that runs a module as a program. ``python`` has the version of this one."""
    return [python, *(("-P",) if _HAS_SAFE_PATH else ("-c", _WITHOUT_IT)), "-m", module, *arguments]


def module_path() -> list[str]:
    """The module path of this process, without the current folder that a plain ``-m`` puts
    first."""
    safe = sys.version_info >= (3, 11) and sys.flags.safe_path
    unsafe = not safe and started_module(sys.orig_argv)
    return sys.path[1:] if unsafe and sys.path[:1] == [os.getcwd()] else list(sys.path)


def forget_current_folder() -> None:
    """Take the current folder off the module path, if this process was started as ``python -m
    millwheel``, or as another program of this package. A program of the user's keeps its path."""
    if started_module(sys.orig_argv).partition(".")[0] == "millwheel":
        sys.path[:] = module_path()


def started_module(argv: Sequence[str]) -> str:
    """The module that a command line of Python runs by ``-m``; "" if it runs something else."""
    words = iter(argv[1:])
    for word in words:
        if word.startswith("-m"):
            return word[2:] or next(words, "")
        if word in ("-W", "-X"):
            next(words, "")
        elif not word.startswith("-") or word.startswith("-c"):
            return ""
    return ""


def begin_process(beside: str = "") -> None:
    """Make the files that this process and its children create private from here on (see
    :func:`.keep_private`, which has ``beside``), and let them open as many files as the system lets
    them. Entry points call it first: a connection or a file may be opened by any import."""
    keep_private(beside)
    raise_limit()
