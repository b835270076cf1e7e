"""The ``millwheel`` command."""

from __future__ import annotations

import atexit
import gc

from millwheel.cli.app import app
from millwheel.cli.errors import sentences


def main() -> None:
    """Entry point: errors of ours are sentences on standard error and exit code 1, never a stack trace."""
    atexit.register(gc.freeze)  # all is about to vanish: the interpreter need not look for garbage first
    with sentences():
        app()
