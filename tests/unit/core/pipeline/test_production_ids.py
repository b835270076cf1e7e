"""An id names what caused a production: unique, and the same when the step runs again."""

from __future__ import annotations

from pathlib import Path

from millwheel.core.formats.store_layout import number8, parse_timer_value
from millwheel.core.model.records import Batch, Domain
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.graph import ClusterView, NodeView
from millwheel.core.pipeline.production_ids import (
    production_id,
    record_causes,
    remembered,
    timer_cause,
)
from tests.unit.launch.progress.test_summary import graph, view


def test_copies_of_a_record_in_two_files_make_one_production_whichever_counts_after_a_crash(
    tmp_path: Path,
) -> None:
    batches = [Batch("hits", [seq], [5], ["ann"], [{}], [7]) for seq in (3, 90)]
    [one], [other] = (
        record_causes(batch, channel) for batch, channel in zip(batches, "ab", strict=True)
    )
    assert production_id(one, 0) == production_id(other, 0) != b""


def test_records_of_two_keys_with_one_external_id_make_two_productions() -> None:
    batch = Batch("hits", [1, 2], [5, 5], ["ann", "bob"], [{}, {}], [7, 7])
    assert len({production_id(cause, 0) for cause in record_causes(batch, "a")}) == 2


def test_what_has_no_cause_has_no_id_and_neither_has_what_follows_from_it() -> None:
    [cause] = record_causes(Batch("hits", [], [5], ["ann"], [{}]), "a")
    assert production_id(cause, 0) == b""
    assert production_id(timer_cause(Due("ann", "t", 5, Domain.EVENT, remembered(cause))), 0) == b""


def test_a_timer_of_an_older_version_is_named_by_its_key_tag_and_time() -> None:
    at, cause = parse_timer_value(number8(5))
    assert timer_cause(Due("ann", "t", at, Domain.EVENT, cause)) == ("t", "ann", "t", 5, "event")


# graph.py: Whether a pipeline has drained.


def test_the_graph_has_drained_when_every_node_has_and_every_range_says_so() -> None:
    assert view().drained(graph())
    for change in (
        NodeView("traffic", MAX_TIME - 1, True, "", {}),
        NodeView("traffic", MAX_TIME, False, "", {}),
    ):
        nodes = {**view().nodes, "traffic": change}
        assert not ClusterView(nodes).drained(graph())
    missing = {name: node for name, node in view().nodes.items() if name != "sink.out"}
    assert not ClusterView(missing).drained(graph())
