"""``python -m bench NAME [options]``: run one measurement; without a name, list them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> int:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        print("python -m bench NAME, where NAME is one of:", *names, sep="\n  ")
        return 0 if len(sys.argv) < 2 else 2
    module = importlib.import_module(f"bench.{sys.argv.pop(1)}")
    return int(module.main() or 0)


if __name__ == "__main__":
    sys.exit(main())
