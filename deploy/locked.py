"""The part of requirements.lock that a requirement needs, with its hashes: ``python
deploy/locked.py '.[kafka]'``.

pip resolves the requirements within the versions of the lock, without installing anything; their
lines are printed as the lock has them. What the lock does not have is an error, so nothing is
installed that it does not name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

LOCK = Path("requirements.lock")
_OWN = "millwheel-spark"


def entries(lock: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and whole text of each requirement in a lock."""
    for entry in re.split(r"\n(?=[A-Za-z0-9])", lock.strip()):
        head = entry.partition("\n")[0]
        pinned = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", head)
        if pinned:
            yield _normal(pinned[1]), pinned[2], entry


def without_hashes(lock: str) -> str:
    """The lock as constraints."""
    return "\n".join(entry.partition("\n")[0].rstrip(" \\") for _, _, entry in entries(lock)) + "\n"


def chosen(lock: str, wanted: Iterable[tuple[str, str]]) -> str:
    """The entries of these names and versions. Raises SystemExit for one that the lock does not
    have, or has without hashes."""
    known = {(name, version): entry for name, version, entry in entries(lock)}
    found = []
    for name, version in sorted((_normal(name), version) for name, version in wanted):
        entry = known.get((name, version), "")
        if "--hash=sha256:" not in entry:
            raise SystemExit(f"requirements.lock has no hashes of {name} {version}; run make lock")
        found.append(entry)
    return "\n".join(found) + "\n"


def resolved(requirements: Sequence[str]) -> list[tuple[str, str]]:
    """What pip would install, by name and version."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder, "constraints.txt"), Path(folder, "report.json")
        constraints.write_text(without_hashes(LOCK.read_text()))
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
        ]
        command.append("--no-build-isolation")  # what builds is named by the lock, too
        environment = {**os.environ, "PIP_NO_DEPS": "0"}
        subprocess.run(
            [*command, "--report", str(report), "-c", str(constraints), *requirements],
            check=True,
            env=environment,
        )
        parts = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return [(part["name"], part["version"]) for part in parts if _normal(part["name"]) != _OWN]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print(chosen(LOCK.read_text(), resolved(sys.argv[1:])), end="")
