"""What a client shows to a gateway."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millwheel.adapters.grpc.security import load_security, make_token
from millwheel.client.tokens import token_for
from millwheel.errors import SetupError
from millwheel.roots.root import ACCESS, Root, RunInfo


def run_on(root: Path, is_open: bool = False) -> None:
    """A root on which a run was started."""
    held = Root.open(str(root), "clicks")
    make_token(held.path / ACCESS)
    security = "" if is_open else str(held.path / ACCESS)
    held.write_run(RunInfo("clicks", "i", "local:/x", os.getpid(), security=security))
    held.close()


def test_a_gateway_on_this_machine_is_shown_a_proof_of_the_only_runs_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert token_for("http://localhost:8080") == "", "there is no run"
    run_on(tmp_path / ".millwheel" / "clicks")
    known = load_security(str(tmp_path / ".millwheel" / "clicks" / ACCESS))
    assert known is not None
    shown = token_for("http://localhost:8080")
    assert known.admits(shown.encode(), "127.0.0.1:8080")
    assert known.token != shown
    assert token_for("http://elsewhere:8080") == "", "nothing is shown to others unasked"


def test_of_a_root_that_is_named_the_token_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "root"
    run_on(root)
    known = load_security(str(root / ACCESS))
    assert known is not None
    assert token_for("https://elsewhere", str(root)) == known.token
    with pytest.raises(SetupError, match="is not the root of a run"):
        token_for("http://localhost", str(tmp_path / "none"))


def test_a_run_that_wants_no_token_is_shown_none(tmp_path: Path) -> None:
    run_on(tmp_path / "root", is_open=True)
    assert token_for("http://localhost", str(tmp_path / "root")) == ""
