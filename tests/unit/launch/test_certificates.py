"""A security folder is made once, and its private files are the owner's alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from millwheel.errors import SetupError
from millwheel.launch.certificates import ROLES, make_set


def test_private_files_of_a_set_are_the_owners_alone(ours: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ours.iterdir()}
    private = {
        name for name in modes if name.endswith(".key") or name in ("token", "zookeeper.auth")
    }
    assert private == {"token", "zookeeper.auth", *(f"{role}.key" for role in ROLES)}
    assert {modes[name] for name in private} == {0o600}
    assert "ca.key" not in modes


def test_a_set_never_replaces_files(ours: Path) -> None:
    before = (ours / "token").read_bytes()
    with pytest.raises(SetupError, match="not empty"):
        make_set(str(ours))
    assert (ours / "token").read_bytes() == before
