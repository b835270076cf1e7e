"""Debian's Chromium for tests of pages: the machine's own, or its packages, once, in a cache of
this user.

Where neither can be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``chromium``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.programs import filled, lacking
from tests.servers.wheels import download

_FETCH_S = 600.0


def executable() -> str:
    """The browser; skips the test where there is none, or fails it where one must be."""
    found = shutil.which("chromium")
    if found is not None:
        return found
    try:
        return str(_unpacked())
    except (OSError, subprocess.SubprocessError) as ex:
        lacking("chromium", f"there is no chromium here, and Debian's packages cannot be had: {ex}")


def _unpacked() -> Path:
    folder = filled("chromium", lambda folder: download(folder, _missing()))
    start = folder / "start"
    # Some libraries lie in folders of their own, such as pulseaudio/, which an installed package
    # finds by its rpath.
    libraries = ":".join(sorted({str(file.parent) for file in (folder / "usr/lib").rglob("*.so*")}))
    start.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {folder}/usr/lib/chromium/chromium "$@"\n'
    )
    start.chmod(0o755)
    return start


def _missing() -> list[str]:
    """Chromium and the packages that it needs and that are not installed here."""
    simulate = ["apt-get", "-q", "-s", "--no-install-recommends", "install", "chromium"]
    said = subprocess.run(
        simulate, check=True, capture_output=True, text=True, timeout=_FETCH_S
    ).stdout
    return [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window, which asks nobody but whom a page names. ``playwright``'s
    Browser."""
    from playwright.sync_api import sync_playwright

    path = executable()
    with sync_playwright() as playwright:
        quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
        started = playwright.chromium.launch(executable_path=path, args=quiet)
        try:
            yield started
        finally:
            started.close()
