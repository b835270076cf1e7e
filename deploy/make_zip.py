"""Writes the package as one zip file; the same sources give the same bytes.

python deploy/make_zip.py build/millwheel.zip
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "millwheel"


def make_zip(target: Path) -> None:
    """The package's Python files, sorted, without dates."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*.py")):
            name = path.relative_to(PACKAGE.parent).as_posix()
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    make_zip(Path(sys.argv[1]))
