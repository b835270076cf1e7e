"""Another user of the machine, as tests attack with: a small program that runs under another
uid."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STRANGER = 65534
"""Nobody's uid and gid."""


def needs_a_stranger() -> pytest.MarkDecorator:
    """Skips a test where this process may not become another user."""
    able = os.geteuid() == 0 and shutil.which("setpriv") is not None
    return pytest.mark.skipif(not able, reason="to become another user takes root and setpriv")


def command_of_a_stranger(code: str, *arguments: str, groups: str = "") -> list[str]:
    """The command that runs a program of Python's own library as another user, perhaps as a member
    of groups."""
    python = shutil.which("python3", path=os.defpath)
    if python is None:
        pytest.skip("there is no python3 that another user could run")
    member = ("--groups", groups) if groups else ("--clear-groups",)
    return [
        "setpriv",
        f"--reuid={STRANGER}",
        f"--regid={STRANGER}",
        *member,
        python,
        "-c",
        code,
        *arguments,
    ]


def said_by_a_stranger(code: str, *arguments: str, groups: str = "") -> str:
    """What that program prints; its errors are its last line."""
    command = command_of_a_stranger(code, *arguments, groups=groups)
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout + done.stderr).strip()


@contextmanager
def stranger(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """That program while the block lasts. Its standard output can be read."""
    command = command_of_a_stranger(code, *arguments)
    process = subprocess.Popen(
        command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
