"""Java packages that a scenario needs: from Maven's packages, once, into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec

from bench.environments import UnavailableEnvironmentError
from bench.paths import cache

_FETCH_S = 900
_DONE = "fetched.json"


def jars(name: str, packages: tuple[str, ...], alone: bool = False) -> Path:
    """The folder with ``group:artifact:version`` and what they need, or, ``alone``, with just
    themselves."""
    folder = cache() / "jars" / name
    done = folder / _DONE
    if done.exists() and msgspec.json.decode(done.read_bytes()) == list(packages):
        return folder / "jars"
    if shutil.which("mvn") is None:
        raise UnavailableEnvironmentError(f"{name} needs mvn, which is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(_pom(packages, alone))
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}/jars",
    ]
    said = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False
    )
    if said.returncode:
        raise UnavailableEnvironmentError(f"{name}: {said.stdout[-500:]}")
    done.write_bytes(msgspec.json.encode(packages))
    return folder / "jars"


def _pom(packages: tuple[str, ...], alone: bool) -> str:
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    nothing = f"<exclusions>{everything}</exclusions>"
    needed = ""
    for package in packages:
        group, artifact, version = package.split(":")
        needed += f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        needed += f"<version>{version}</version>{nothing if alone else ''}</dependency>\n"
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
{needed}</dependencies></project>
"""
