"""The ``millwheel`` command."""

from __future__ import annotations

import atexit
import gc

from millwheel.cli.app import app
from millwheel.cli.errors import sentences


def main() -> None:
    """Entry point: our own errors appear as sentences on standard error with exit code 1, never as a stack trace."""
    atexit.register(gc.freeze)  # the process ends: a last garbage collection would be wasted
    with sentences():
        app()
