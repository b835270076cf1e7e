"""What a worker tells of divided keys, as values and as metrics."""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core import metrics as c
from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.observations import InstanceLoads
from millwheel.engine.workers.delivery.instances import InstanceCounts, ProductionInstances
from millwheel.engine.workers.host.divided_keys import DividedKeys, divided_keys
from millwheel.engine.workers.host.figures import figures_of
from tests.unit.engine.workers.loop.stand import live

PLACE = ("work", "work-0")


def test_a_worker_without_divided_keys_tells_nothing() -> None:
    _, served = live()
    assert divided_keys([served], []) == DividedKeys()


def test_instances_of_a_divided_node_have_their_records_and_the_time_of_their_shard() -> None:
    _, served = live()
    served.shard.instance_counts = InstanceCounts()
    served.shard.instance_counts.records.update({3: 7, 1: 2})
    served.done.busy_us, served.shard.meta.next_seq = 500_000, 5
    assert divided_keys([served], []).loads == (
        InstanceLoads("work", "work-0", {1: 2, 3: 7}, 0.5, 4),
    )
    found = {(each.metric, each.values): each.value for each in figures_of([served], 0)}
    assert found[c.INSTANCE_RECORDS, (*PLACE, "3")] == 7


def test_a_node_that_merges_accumulators_tells_its_results() -> None:
    _, served = live()
    served.shard.meta.next_seq = 9
    assert divided_keys([served], ["work"]).loads == (InstanceLoads("work", "work-0", {}, 0.0, 8),)


def test_what_a_shard_produces_is_divided_by_its_own_tables() -> None:
    def rules(stream: str) -> Mapping[str, Rule]:
        return {"partial.c": Rule("tag", 2)}

    _, served = live()
    instances = served.shard.productions.instances = ProductionInstances(rules)
    chosen = instances.choosing("out", 3, 1, 0)
    assert chosen is not None
    chosen.of("partial.c", 2, ["a", "a", "b"], [])
    [division] = divided_keys([served], []).divisions
    assert (division.node, division.sender, division.grouping) == ("partial.c", "work-0", "tag")
    found = {(each.metric, each.values): each.value for each in figures_of([served], 0)}
    about = (*PLACE, "work-0", "partial.c")
    assert (found[c.GROUPING_EPOCH, about], found[c.GROUPING_HOT_KEYS, about]) == (0, 0)
    assert found[c.GROUPING_SHARE, (*about, "1")] == 0.5
    assert not [metric for metric, _ in found if metric == c.GROUPING_TIME], (
        "nothing is measured yet"
    )
