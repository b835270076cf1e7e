"""The ``millwheel`` command."""

from __future__ import annotations

import sys

from millwheel.cli.app import app
from millwheel.errors import MillwheelError


def main() -> None:
    """Entry point: errors of ours are sentences on stderr and exit code 1, never a stack trace."""
    try:
        app()
    except MillwheelError as error:
        sys.stderr.write(f"millwheel: {error}\n")
        sys.exit(1)
