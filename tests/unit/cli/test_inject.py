from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.client.injector import id_field
from millwheel.errors import SetupError
from millwheel.roots.shipping import ship
from millwheel.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  clicks: {source: {injection: {}}, timestamp: t}
  files: {source: {files: {path: x, format: jsonl}}, timestamp: t}
sinks:
  clicks: {stdout: {}}
  files: {stdout: {}}
"""


def test_only_injection_sources_take_records_from_outside(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "p.yaml").write_text(PIPELINE)
    root = tmp_path / "root"
    root.mkdir()
    file = tmp_path / "home" / "p.yaml"
    ship(file, {}, root, load_pipeline(file))
    id_field(str(root), "clicks")
    for stream in ("files", "nothing"):
        with pytest.raises(SetupError, match=f"no injected records for '{stream}': it accepts clicks"):
            id_field(str(root), stream)
