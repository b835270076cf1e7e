"""A whole run with secrets, of which nothing lies in the root, in logs, in savepoints or on the
terminal."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.slow.runs import Run

pytestmark = pytest.mark.slow
PASSWORD = "s3cr3t-of-the-database"
TOKEN = "t0ken-of-the-interface"
PIPELINE = """
pipeline: secretive
streams:
  hits:
    source: {files: {path: "hits.jsonl", format: jsonl}}
    timestamp: ts
computations:
  call:
    input: {hits: {key: k}}
    callback: calling:Call
    options: {token: "Bearer ${secret:TOKEN}"}
    output: out
sinks:
  out: {digests: {path: "out", password: "me:${secret:PASSWORD}"}}
"""
CALLING = """
import logging, sys
from millwheel import Computation

class Call(Computation):
    def __init__(self, token):
        self.token = token
        logging.getLogger("client").warning("connecting with %s", token)
        print(token, file=sys.stderr)

    def process_record(self, ctx, record):
        if record.value["k"] == "bad":
            raise ConnectionError(f"refused {self.token}")
        ctx.produce("out", {"k": record.value["k"], "seen": len(self.token)})
"""
SINK = """
import hashlib, logging
from pathlib import Path
from millwheel.connect.sinks.files.sink import build_files

def build(options, folder):
    password = options.pop("password")
    if not password.startswith("me:${"):
        logging.getLogger("sink").error("as %r", {"password": password})
        digest = hashlib.sha256(password.encode()).hexdigest()
        Path(folder, f"seen-{digest}").touch()
    return build_files(options, folder)
"""


def installed(site: Path) -> Path:
    """A package with a sink, as pip would leave it."""
    (site / "digests-1.0.dist-info").mkdir(parents=True)
    (site / "digests-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: digests\nVersion: 1.0\n"
    )
    (site / "digests-1.0.dist-info" / "entry_points.txt").write_text(
        "[millwheel.sinks]\ndigests = digests:build\n"
    )
    (site / "digests.py").write_text(SINK)
    return site


@pytest.mark.parametrize("launcher", ["processes", pytest.param("spark", marks=pytest.mark.long)])
def test_secrets_reach_workers_and_are_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    home, secrets = tmp_path / "home", tmp_path / "secrets"
    home.mkdir()
    secrets.mkdir()
    (home / "p.yaml").write_text(PIPELINE)
    (home / "calling.py").write_text(CALLING)
    (home / "hits.jsonl").write_text(
        "".join(f'{{"ts": {n}, "k": "{"bad" if n == 3 else n}"}}\n' for n in range(9))
    )
    (secrets / "PASSWORD").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("TOKEN", TOKEN)
    site = installed(tmp_path / "site")
    run = Run(
        home / "p.yaml",
        home,
        launcher=launcher,
        workers=1,
        more=("--secrets", str(secrets)),
        path=(str(site),),
    )
    run.start().wait()
    assert run.code == 0, run.said
    assert run.summary["dead_letters"] == 1
    digest = hashlib.sha256(f"me:{PASSWORD}".encode()).hexdigest()
    assert (
        [path.name for path in home.rglob("seen-*")].count(f"seen-{digest}")
        == len(list(home.rglob("seen-*")))
        > 0
    )
    rows = "".join(path.read_text() for path in (home / "out").glob("*.jsonl"))
    assert rows.count(f'"seen":{len("Bearer ") + len(TOKEN)}') == 8
    told = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    told["the terminal"] = run.said.encode()
    assert [
        index for index, data in told.items() if PASSWORD.encode() in data or TOKEN.encode() in data
    ] == []
    assert any(
        b"connecting with Bearer ***" in data for index, data in told.items() if "/logs/" in index
    )
    assert any(
        b"refused Bearer ***" in data for index, data in told.items() if "dead_letters" in index
    )


def test_a_run_without_its_secrets_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "calling.py").write_text(CALLING)
    (tmp_path / "hits.jsonl").write_text("")
    monkeypatch.setenv("TOKEN", TOKEN)
    run = (
        Run(tmp_path / "p.yaml", tmp_path, path=(str(installed(tmp_path / "site")),)).start().wait()
    )
    assert run.code == 1
    assert "The secret 'PASSWORD' has no value here" in run.said
