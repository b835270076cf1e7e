from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.control.roots.shipping import ship
from millwheel.errors import SetupError
from millwheel.language.spec import load_pipeline
from millwheel.tools.cli.change.inject import _report
from millwheel.tools.client.injector import id_field

PIPELINE = """
pipeline: p
streams:
  clicks: {source: {injection: {}}, timestamp: t}
  users: {source: {injection: {}}, timestamp: t, id: n, table: u}
  files: {source: {files: {path: x, format: jsonl}}, timestamp: t}
sinks:
  clicks: {stdout: {}}
  users: {stdout: {mode: changelog}}
  files: {stdout: {}}
"""


def test_only_injection_sources_take_records_from_outside(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "p.yaml").write_text(PIPELINE)
    root = tmp_path / "root"
    root.mkdir()
    file = tmp_path / "home" / "p.yaml"
    ship(file, {}, root, load_pipeline(file))
    assert id_field(str(root), "clicks") == ""
    assert id_field(str(root), "users") == id_field(str(root), "events.users") == "n"
    for stream in ("files", "nothing"):
        with pytest.raises(
            SetupError, match=f"no injected records for '{stream}': it accepts clicks, users"
        ):
            id_field(str(root), stream)


def test_what_was_injected_is_one_object_for_other_programs(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    done = InjectionResult(accepted=3, duplicates=1)
    _report(done, Console(file=io.StringIO()), as_json=True)
    assert msgspec.json.decode(capfdbinary.readouterr().out) == {
        "accepted": 3,
        "duplicates": 1,
        "rejected": 0,
    }
