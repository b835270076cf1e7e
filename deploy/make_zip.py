"""Writes the package as one zip file; the same sources, and the same version of Python, give the
same bytes.

python deploy/make_zip.py build/millwheel.zip

Beside each source lies what this Python compiles of it: nothing can be kept beside a zip file, so
every process would compile every module that it loads. Another version of Python finds that it is
not its own, and compiles the source.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "millwheel"


def make_zip(target: Path) -> None:
    """The package's Python files, sorted, without dates, each with its compiled form. Makes the
    folder if need be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
        tempfile.TemporaryDirectory() as folder,
    ):
        for path in sorted(PACKAGE.rglob("*.py")):
            name = path.relative_to(PACKAGE.parent).as_posix()
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
            archive.writestr(
                zipfile.ZipInfo(f"{name}c"), compiled(path, name, folder), zipfile.ZIP_DEFLATED
            )


def compiled(path: Path, name: str, folder: str) -> bytes:
    """The module in compiled form. It names a hash of its source that nobody checks: files in a zip
    have no dates."""
    made = Path(folder) / "module.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), str(made), name, doraise=True, invalidation_mode=mode)
    return made.read_bytes()


if __name__ == "__main__":
    make_zip(Path(sys.argv[1]))
