from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.core.pipeline.cluster_view import ClusterView, NodeView
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.launch.standing import collector
from millwheel.launch.standing.reasons import ReasonsOfStandstill
from tests.unit.tools.ui.test_drawing import TEXT


def test_the_driver_knows_what_its_processes_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = '{"waits": [{"what": "sink out", "why": "no space left", "for_s": 11}]}'
    monkeypatch.setattr(
        collector, "fetched", lambda addresses, path, security: dict.fromkeys(addresses, said)
    )
    (tmp_path / "p.yaml").write_text(TEXT)
    entries = {"w0-a": b'{"slot": 0, "pid": 1, "address": "h:1", "metrics": "h:11"}'}
    watcher: Any = SimpleNamespace(latest=None, tables={}, entries=entries)
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    reasons = ReasonsOfStandstill(graph, "drawn", tmp_path, watcher, None)
    reasons.look(0.0)
    assert reasons.reasons == (), "no injector has answered yet"
    watcher.latest = ClusterView({"source.words": NodeView("source.words", 0, True, "", {})})
    reasons.look(1.0)
    assert reasons.reasons == ("sink out: no space left (for 11 s)",)
