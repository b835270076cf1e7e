"""``python -m millwheel`` is the ``millwheel`` command."""

from __future__ import annotations

from millwheel.tools.cli import main

if __name__ == "__main__":
    main()
