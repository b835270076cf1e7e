"""What type checkers, and so editors, know of state and streams without annotations; mistakes are
errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import HOUSE

pytestmark = pytest.mark.slow

FILES = sorted((HOUSE / "tests" / "typing").glob("*.py"))


def marked() -> set[tuple[str, int]]:
    """The lines that say that they are wrong."""
    lines = (
        (path.name, number, line)
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
    )
    return {(name, number) for name, number, line in lines if line.endswith("# error")}


def test_mypy_knows_the_types_and_finds_every_mistake() -> None:
    """With what `make types` has found out about the package, where it was called before."""
    command = [sys.executable, "-m", "mypy", *map(str, FILES)]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    found = {
        (name, int(line)) for name, line in re.findall(r"(\w+\.py):(\d+): error:", done.stdout)
    }
    assert found == marked(), done.stdout + done.stderr


def test_pyright_knows_them_too(tmp_path: Path) -> None:
    settings = {
        "include": list(map(str, FILES)),
        "typeCheckingMode": "standard",
        "extraPaths": [str(HOUSE)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        str(Path(sys.executable).with_name("basedpyright")),
        "--outputjson",
        "-p",
        str(tmp_path),
    ]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    errors = [
        each
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    ]
    found = {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors}
    assert found == marked(), errors
