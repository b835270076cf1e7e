"""The ``millwheel`` command."""

from __future__ import annotations

import atexit
import gc

from millwheel.cli.app import app
from millwheel.cli.errors import sentences
from millwheel.processes.libraries import no_idle_threads


def main() -> None:
    """Entry point: our own errors appear as sentences on standard error with exit code 1, never as a stack trace."""
    atexit.register(gc.freeze)  # the process ends: a last garbage collection would be wasted
    no_idle_threads()
    with sentences():
        app()
