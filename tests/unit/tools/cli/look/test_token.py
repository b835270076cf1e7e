from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from millwheel.adapters.grpc.security import load_security
from millwheel.control.roots.root import ACCESS
from millwheel.tools.cli.app import app
from tests.unit.tools.client.test_queries import run_on


def test_the_token_is_printed_and_nothing_else(tmp_path: Path) -> None:
    run_on(tmp_path / "root")
    known = load_security(str(tmp_path / "root" / ACCESS))
    assert known is not None
    done = CliRunner().invoke(app, ["token", str(tmp_path / "root")])
    assert done.stdout == f"{known.token}\n"


def test_a_run_that_wants_none_says_so(tmp_path: Path) -> None:
    run_on(tmp_path / "root", is_open=True)
    done = CliRunner().invoke(app, ["token", str(tmp_path / "root")])
    assert "was started with --open" in str(done.exception)
