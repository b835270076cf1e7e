"""The root that a command uses when it was called without one."""

from __future__ import annotations

import sys
from pathlib import Path

from millwheel.control.roots.attaching import find_root


def chosen_root(address: str) -> Path:
    """The root that :func:`.find_root` finds. Where ``address`` is "", standard error names it.

    Raises SetupError when there is no run to choose, or more than one.
    """
    root = find_root(address)
    if not address:
        short_path = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
        sys.stderr.write(f"Using the run in {short_path}\n")
    return root
