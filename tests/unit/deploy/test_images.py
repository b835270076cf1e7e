"""Images and compose files: nothing unpinned, nobody root, no password that everybody knows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

HOUSE = Path(__file__).parents[3]
DOCKERFILE = (HOUSE / "deploy" / "Dockerfile").read_text()
COMPOSES = sorted((HOUSE / "deploy").rglob("compose*.y*ml"))
PINNED = re.compile(r"[a-z/]+(?:@sha256:[0-9a-f]{64}|:v?[0-9]+\.[0-9]+\.[0-9]+(?:-[a-z-]+)?)")
DEFAULT_PASSWORDS = re.compile(r"admin|changeme|password|secret|root|postgres|guest", re.IGNORECASE)


def _locked() -> Any:
    spec = importlib.util.spec_from_file_location("locked", HOUSE / "deploy" / "locked.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _default(image: str) -> str:
    """The image of ``${NAME:-image}``."""
    found = re.fullmatch(r"\$\{[A-Z_]+:-(.+)\}", image)
    return found[1] if found else image


def _services() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in COMPOSES:
        for name, service in YAML(typ="safe").load(path)["services"].items():
            found.append((f"{path.parent.name}/{name}", service))
    return found


def test_every_package_of_an_image_is_installed_by_its_hash() -> None:
    installs = re.findall(r"pip (?:install|wheel)[^\n&]*", DOCKERFILE)
    assert len(installs) >= 4
    for command in installs:
        assert (
            "--require-hashes" in command
            or "--no-index" in command
            or command.endswith(" dist . \\")
        ), command
        assert "pip install" in command or "--no-build-isolation" in command
    assert "PIP_NO_DEPS=1" in DOCKERFILE
    # nothing takes them out of the lock
    assert "hash" not in re.sub(r"--require-hashes|#[^\n]*", "", DOCKERFILE)


def test_base_images_have_exact_versions_and_the_readme_says_how_to_have_digests() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert PINNED.fullmatch(base)
    stages = {"build", "${PYTHON_IMAGE}"}
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) <= stages
    readme = (HOUSE / "deploy" / "README.md").read_text()
    assert "not by\ndigests" in readme
    assert base in readme


@pytest.mark.parametrize(("name", "service"), _services())
def test_no_container_is_root_or_has_an_image_that_moves(
    name: str, service: dict[str, Any]
) -> None:
    assert re.fullmatch(r"[1-9][0-9]*(?::[0-9]+)?", str(service["user"])), name
    if "build" not in service:
        assert PINNED.fullmatch(_default(service["image"])), name


def test_images_that_are_built_end_as_a_user_of_their_own() -> None:
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        if "ENTRYPOINT" in stage:
            assert re.findall(r"^USER ([0-9]+)$", stage, re.MULTILINE)[-1] != "0"


@pytest.mark.parametrize("path", COMPOSES, ids=lambda path: path.parent.name)
def test_there_is_no_password_that_everybody_knows(path: Path) -> None:
    for _, service in YAML(typ="safe").load(path)["services"].items():
        given = service.get("environment", {})
        assert isinstance(given, dict)
        for name, value in given.items():
            assert "PASSWORD" not in name.upper() or not DEFAULT_PASSWORDS.search(str(value))
        if "grafana" in str(service.get("image")):  # it makes admin/admin unless it is told not to
            assert given["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
            assert given["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


def test_the_chosen_part_of_the_lock_keeps_its_hashes_and_lacks_nothing() -> None:
    locked, lock = _locked(), (HOUSE / "requirements.lock").read_text()
    versions = {name: version for name, version, _ in locked.entries(lock)}
    text = locked.chosen(lock, [("Typer", versions["typer"]), ("msgspec", versions["msgspec"])])
    assert text.startswith("msgspec==")
    assert text.count("--hash=sha256:") >= 2
    assert set(re.findall(r"^([a-z]+)==", text, re.MULTILINE)) == {"msgspec", "typer"}
    for wanted in ([("typer", "0.0.1")], [("leftpad", "1")]):
        with pytest.raises(SystemExit, match="no hashes of"):
            locked.chosen(lock, wanted)
    assert "--hash" not in locked.without_hashes(lock)
    assert f"typer=={versions['typer']}" in locked.without_hashes(lock)
