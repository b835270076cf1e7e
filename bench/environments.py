"""A virtual environment for each peer, in the cache, made on first use from what PyPI has."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.paths import cache

_INSTALL_S = 1_200
_DONE = "installed.json"


class UnavailableEnvironmentError(Exception):
    """An environment cannot be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a peer is installed from. ``before``: it has packages only for Pythons older than that
    minor version."""

    name: str
    packages: tuple[str, ...]
    before: int = 99

    @property
    def folder(self) -> Path:
        return cache() / "environments" / self.name


def python_of(environment: Environment) -> str:
    """The interpreter of an environment that is ready. Raises UnavailableEnvironmentError when it
    cannot be made."""
    done = environment.folder / _DONE
    if not done.exists() or msgspec.json.decode(done.read_bytes()) != list(environment.packages):
        _make(environment)
        done.write_bytes(msgspec.json.encode(environment.packages))
    return str(environment.folder / "bin" / "python")


def versions(environment: Environment) -> dict[str, str]:
    """What is installed there, by name."""
    command = [
        python_of(environment),
        "-m",
        "pip",
        "list",
        "--format",
        "json",
        "--disable-pip-version-check",
    ]
    listed = msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout)
    wanted = {package.partition("=")[0] for package in environment.packages}
    return {each["name"]: each["version"] for each in listed if each["name"] in wanted}


def _make(environment: Environment) -> None:
    shutil.rmtree(environment.folder, ignore_errors=True)
    base = _base_python(environment)
    _run([base, "-m", "venv", str(environment.folder)], environment)
    pip = [
        str(environment.folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
    ]
    _run([*pip, *environment.packages], environment)


def _base_python(environment: Environment) -> str:
    if sys.version_info[1] < environment.before:
        return sys.executable
    for minor in range(environment.before - 1, 9, -1):
        found = shutil.which(f"python3.{minor}")
        if (
            found
            and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode
        ):
            return found
    raise UnavailableEnvironmentError(
        f"{environment.name} needs a Python older than 3.{environment.before}; none was found"
    )


def _run(command: list[str], environment: Environment) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.TimeoutExpired as ex:
        raise UnavailableEnvironmentError(
            f"{environment.name}: installing took longer than {_INSTALL_S} s"
        ) from ex
    except subprocess.CalledProcessError as ex:
        raise UnavailableEnvironmentError(f"{environment.name}: {ex.stderr[-500:]}") from ex
