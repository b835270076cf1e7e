from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.adapters.grpc.channels import new_server
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.pb.master_pb2_grpc import add_MasterServicer_to_server
from millwheel.control.master.runtime import MasterView
from millwheel.control.master.server import MasterService
from millwheel.control.master.state import WorkerState
from millwheel.control.master.tables.spares import HostLoss
from millwheel.core.model.names import NodeName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.pipeline.graph import ClusterView, NodeView, build_graph
from millwheel.errors import UnavailableError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.launch.certificates import make_set, renew_set
from millwheel.launch.progress import collector
from millwheel.launch.progress.collector import ClusterEntries, ask, ending, standing_now
from millwheel.launch.progress.run_standing import ExposedHost
from tests.unit.tools.ui.test_layout import TEXT

WORKERS = {
    "w1-b": b'{"slot": 1, "pid": 2, "address": "h:2", "metrics": "h:12"}',
    "w0-a": b'{"slot": 0, "pid": 1, "address": "h:1", "metrics": "h:11", "host": "h", "rack": "r"}',
}
STEP = (
    '{"step_s": 2.5, "where": "checks.py:9", "calls": [{"shard": "count-0", "what": "record",'
    ' "key": "\'a\'"}]}'
)


@pytest.fixture
def known() -> ClusterEntries:
    entries = (ShardEntry("count-0", tile(1)[0], "w0-a", 1),)  # type: ignore[arg-type]
    return ClusterEntries({NodeName("count"): RangeTable("count", entries, 1)}, WORKERS)  # type: ignore[arg-type]


def test_workers_say_what_they_are_busy_with(
    known: ClusterEntries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(addresses: dict[str, str], path: str, security: Any) -> dict[str, str]:
        assert (addresses, path) == ({"w1-b": "h:12", "w0-a": "h:11"}, "/standing")
        return {"w0-a": STEP}

    monkeypatch.setattr(collector, "fetched", fetched)
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    view = ClusterView({"source.words": NodeView("source.words", 0, True, "", {"records_in": 5})})
    found = standing_now(graph, "drawn", tmp_path, known, None, view)
    first, second = found.workers
    assert (first.worker, first.slot, first.shards, first.answers, first.step_s) == (
        "w0-a",
        0,
        1,
        True,
        2.5,
    )
    assert [(each.host, each.rack) for each in found.workers] == [("h", "r"), ("", "")]
    assert first.calls == ("record of key 'a' in count-0",)
    assert (second.worker, second.answers) == ("w1-b", False)
    assert found.records_in == 5
    assert (
        found.troubles[0]
        == "w0-a has been in one step for 2.5 s: record of key 'a' in count-0, at checks.py:9"
    )
    assert found.troubles[1] == "w1-b (slot 1) does not answer"


def test_the_leading_master_says_how_slow_workers_are_and_how_full(
    known: ClusterEntries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(addresses: dict[str, str], path: str, security: Any) -> dict[str, str]:
        return {}

    monkeypatch.setattr(collector, "fetched", fetched)
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    service = MasterService(lambda item: pytest.fail("asked to change something"))
    service.view = lambda: MasterView(
        members={WorkerName("w0-a"): WorkerState(3, 4.0, 0.5)}, exposures=(HostLoss("h", 1, 0),)
    )
    server, address = new_server(2, "127.0.0.1:0", None)
    add_MasterServicer_to_server(service, server)
    server.start()
    try:
        known.masters = {"m-1": json.dumps({"address": address}).encode()}
        run = standing_now(graph, "drawn", tmp_path, known, None, ClusterView({}))
    finally:
        server.stop(None)
    # it is gone, and no other one leads yet
    known.masters = {"m-1": json.dumps({"address": address}).encode()}
    untold = standing_now(graph, "drawn", tmp_path, known, None, ClusterView({})).workers
    assert run.exposures == (ExposedHost("h", 1, 0, 1),)
    assert run.troubles[-1].startswith(
        "the loss of the host h would leave 1 seats empty (workers that serve there: 1,"
    )
    assert [(each.weight, each.slowness, each.memory) for each in run.workers] == [
        (3, 4.0, 0.5),
        (1, 1.0, 0.0),
    ]
    assert [(each.weight, each.slowness, each.memory) for each in untold] == [(1, 1.0, 0.0)] * 2


def test_what_workers_and_the_driver_wait_for_comes_first(
    known: ClusterEntries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(addresses: dict[str, str], path: str, security: Any) -> dict[str, str]:
        assert addresses["driver"] == "h:9"
        full = '{"waits": [{"what": "sink out", "why": "no space left", "for_s": %d}]}'
        cores = '{"waits": [{"what": "Spark", "why": "no core is free", "for_s": 12}]}'
        return {"w0-a": full % 11, "w1-b": full % 40, "driver": cores}

    monkeypatch.setattr(collector, "fetched", fetched)
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    (tmp_path / "metrics.json").write_text('[{"targets": ["h:9"]}]')
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    run = standing_now(graph, "drawn", tmp_path, known, None, ClusterView({}))
    assert run.troubles[:2] == (
        "sink out: no space left (for 40 s)",
        "Spark: no core is free (for 12 s)",
    )
    assert [(each.what, each.for_s) for each in run.waits] == [("sink out", 40), ("Spark", 12)]


def test_without_a_leader_nothing_is_known(known: ClusterEntries, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(dedent(TEXT))
    graph = build_graph(load_pipeline(tmp_path / "p.yaml"))
    with pytest.raises(UnavailableError, match="No injector leads"):
        ask(graph, "drawn", tmp_path, known, None)


def test_certificates_that_end_soon_are_told_of(tmp_path: Path) -> None:
    folder = make_set(str(tmp_path / "set"), datetime.now(timezone.utc) - timedelta(days=360))
    [told] = ending(load_security(str(folder), "client"))
    assert "end in 4 days" in told
    assert ending(None) == ending(Security("t" * 32)) == ()
    renew_set(str(folder))
    assert ending(load_security(str(folder), "client")) == ()
