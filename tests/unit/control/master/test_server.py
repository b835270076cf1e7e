from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millwheel.adapters.pb import master_pb2 as pb
from millwheel.control.master.runtime import MasterView
from millwheel.control.master.server import MasterService, _resharding, figures_of
from millwheel.control.master.state import WorkerState
from millwheel.control.master.tables.resharding import Merge, Split
from millwheel.control.master.tables.spares import HostLoss
from millwheel.core import metrics as c
from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, tile
from tests.unit.engine.workers.loop.stand import table

TABLE = RangeTable("n", (ShardEntry("n-0", tile(1)[0], "w", 1),), 0)  # type: ignore[arg-type]
VIEW: Any = SimpleNamespace(
    tables=[TABLE], workers=["w"], loads={"n-0": SimpleNamespace(busy=0.5, records_per_s=9.0)}
)
VIEW.members = {"w": WorkerState(2, 4.0, 0.5)}
VIEW.exposures = (HostLoss("h", 3, 1),)


class Aborted(Exception):
    pass


class Context:
    def abort(self, code: Any, details: str) -> None:
        raise Aborted(f"{code.name}: {details}")


def service(refusal: str | None = "") -> MasterService:
    """One whose loop answers every request so."""
    made = MasterService(lambda item: cast("Any", item).answer(refusal))
    made.view = lambda: VIEW
    return made


def test_a_master_that_stands_by_answers_nothing() -> None:
    standing_by = MasterService(lambda item: pytest.fail("asked"))
    for ask in (standing_by.Describe, standing_by.Move, standing_by.Reshape):
        with pytest.raises(Aborted, match="FAILED_PRECONDITION: this master stands by"):
            ask(cast("Any", None), cast("Any", Context()))


def test_what_is_known_is_described() -> None:
    reply = service().Describe(pb.DescribeRequest(), cast("Any", Context()))
    assert list(reply.workers) == ["w"]
    assert RangeTable.decode(reply.tables[0], 0) == TABLE
    assert [(work.shard, work.busy, work.records_per_s) for work in reply.work] == [
        ("n-0", 0.5, 9.0)
    ]
    members = [pb.MemberState(worker="w", weight=2, slowness=4, memory=0.5)]
    assert list(reply.members) == members
    assert list(reply.exposures) == [pb.HostLoss(host="h", serving=3, spares=1)]
    few = service().Describe(pb.DescribeRequest(members_only=True), cast("Any", Context()))
    assert (list(few.members), list(few.tables), list(few.work)) == (members, [], [])
    assert list(few.exposures) == list(reply.exposures)


def test_a_move_is_accepted_or_refused_with_the_reason() -> None:
    request = pb.MoveRequest(node="n", shard="n-0", worker="w")
    for refusal in ("", "it moves already"):
        reply = service(refusal).Move(request, cast("Any", Context()))
        assert (reply.accepted, reply.reason) == (not refusal, refusal)


def test_a_split_is_in_the_middle_unless_a_hash_is_given() -> None:
    def asked(**more: str) -> Any:
        return _resharding(pb.ReshapeRequest(node="n", shard="n-0", **more), VIEW)

    assert asked() == Split("n", "n-0", SPACE // 2)  # type: ignore[arg-type]
    assert asked(at="ff") == Split("n", "n-0", 255)  # type: ignore[arg-type]
    assert asked(merge_with="n-1") == Merge("n", "n-0", "n-1")  # type: ignore[arg-type]


def test_a_hash_that_is_none_is_refused_before_the_loop_is_asked() -> None:
    request = pb.ReshapeRequest(node="n", shard="n-0", at="xyz")
    reply = service(None).Reshape(request, cast("Any", Context()))
    assert (reply.accepted, reply.reason) == (
        False,
        "'xyz' is not a hash: give up to 16 hex digits",
    )


def test_a_shard_of_a_dead_worker_has_no_owner() -> None:
    view = MasterView((WorkerName("w0"),), (table("work", ("w0", 1), ("dead", 1), ("", 0)),))
    view = replace(
        view,
        members={WorkerName("w0"): WorkerState(1, 4.0, 0.5)},
        exposures=(HostLoss("h1", 3, 1),),
    )
    found = {(each.metric, *each.values): each.value for each in figures_of(view)}
    shards = {(c.OWNED_SHARDS, "work"): 1, (c.ORPHANED_SHARDS, "work"): 2}
    assert found == {
        (c.LIVE_WORKERS,): 1,
        (c.SLOWNESS, "w0"): 4.0,
        (c.EXPOSED_SEATS, "h1"): 2,
        **shards,
    }
