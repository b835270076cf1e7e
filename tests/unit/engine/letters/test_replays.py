"""What was asked to be tried again becomes records for each consumer, once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.replays import ReplayOrder, Request, as_key
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import DEAD_LETTERS, InputSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine.letters import replays
from millwheel.engine.letters.letters import replayable
from millwheel.engine.letters.replays import Binding, ask, asked_for
from millwheel.testing import PipelineHarness
from tests.computations import computation_spec
from tests.unit.engine.workers.loop.test_replaying import numbers, spec


def test_a_key_that_could_not_be_had_is_looked_for_again_and_only_for_its_consumer() -> None:
    with PipelineHarness(spec()) as harness:
        harness.push("hits", [{"at": 5, "n": 1, "name": "ann"}, {"at": 6, "n": 2, "user": "bob"}])
        assert [letter["computation"] for letter in harness.read(DEAD_LETTERS)] == ["counting"]
        assert harness.replay() == 1
        again = harness.read(DEAD_LETTERS)[-1]
        assert (again["computation"], again["what"], len(again["history"])) == (
            "counting",
            "key of hits",
            1,
        )
        assert sorted(harness.read("others")) == [1, 2]
        assert harness.replay() == 1
        assert len(harness.read(DEAD_LETTERS)[-1]["history"]) == 2


def test_lines_that_were_no_records_go_to_all_consumers_of_their_stream() -> None:
    good = {"at": 5, "n": 7, "user": "ann"}
    letter = {
        "pipeline": "p",
        "computation": "source.hits",
        "stream": "hits",
        "reason": "no valid JSON",
        "value": json.dumps(good),
        "what": "line",
    }
    broken = {**letter, "value": "{broken"}
    wanted = [
        replayable(row, f"part:{number}").wanted() for number, row in enumerate((letter, broken))
    ]
    order = Binding(spec()).order(Request("id", wanted))
    assert [(each.node, each.key, each.timestamp, each.value) for each in order.records[:2]] == [
        ("counting", "ann", 5, good),
        ("other", 7, 5, good),
    ]
    (left,) = order.records[2:]
    assert (left.node, left.blame, left.value) == ("counting", "source.hits", "{broken")
    assert left.problem.startswith("still no record")
    with PipelineHarness(spec()) as harness:
        harness._cluster.order(order)
        assert numbers(harness) == [7]
        assert harness.read("others") == [7]
        (again,) = harness.read(DEAD_LETTERS)
        assert (again["computation"], again["what"], again["value"]) == (
            "source.hits",
            "line",
            "{broken",
        )
        assert len(again["history"]) == 1


@pytest.mark.parametrize("divided", [Divided.TAG, Divided.HOT, Divided.ALL])
def test_a_line_for_a_node_with_divided_keys_gets_an_instance(divided: Divided) -> None:
    hits = InputSpec("hits", KeySpec(KeyKind.FIELD, ("user",)))
    whole = computation_spec(
        "counting",
        (hits,),
        ("o",),
        window=WindowSpec("tumbling", {"size_us": 60}),
        aggregates=(AggregateSpec("n", "count"),),
        scatter=4,
        divided=divided,
    )
    line = {"pipeline": "p", "computation": "source.hits", "stream": "hits", "reason": "no JSON"}
    letter = {**line, "value": json.dumps({"at": 5, "n": 7, "user": "ann"}), "what": "line"}
    planned_spec = planned(replace(spec(), computations=(whole,)))
    order = Binding(planned_spec).order(Request("id", [replayable(letter, "part:0").wanted()]))
    (again,) = order.records
    assert (again.node, again.problem) == ("partial.counting", "")
    assert as_key(again.key)[0] == "ann"
    assert as_key(again.key)[1] in range(4)


def test_a_split_of_what_was_asked_for_never_counts_a_letter_twice(tmp_path: Path) -> None:
    letters = [
        replayable(
            {"computation": "c", "reason": "r", "stream": "s", "what": "record", "timestamp": 1},
            f"f:{n}",
        )
        for n in range(12)
    ]
    orders = ReplayOrders(open_space(str(tmp_path)))
    assert ask(tmp_path, orders, letters, 5) == 5
    assert ask(tmp_path, orders, letters, None) == 7
    assert ask(tmp_path, orders, letters, None) == 0
    assert asked_for(orders) == {letter.id for letter in letters}
    assert sorted(orders.unbound()) == [1, 2]
    assert orders.pending()
    for number, request in orders.unbound().items():
        orders.bind(number, ReplayOrder(request.id, []))
        assert not orders.undone(frozenset({number})).get(number)
        orders.finish(number)
    assert not orders.pending()
    assert not orders.undone()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('{"at": "1970-01-01T00:00:00.000005Z", "n": 7, "user": "ann"}', 5),
        ({"at": "1970-01-01T00:00:00.000005Z", "n": 7, "user": "ann"}, 5),
        ({"at": 1_767_225_600, "n": 7, "user": "ann"}, 1_767_225_600),
        ('{"at": 1767225600, "n": 7, "user": "ann"}', None),
    ],
)
def test_times_of_lines_are_read_and_those_of_records_were(value: Any, read: int | None) -> None:
    hits = replace(spec().stream("hits"), times={"at": "timestamp"}, states_unit=True)
    others = tuple(each for each in spec().streams if each.name != "hits")
    letter = {
        "pipeline": "p",
        "computation": "source.hits",
        "stream": "hits",
        "reason": "late news",
        "value": value,
        "what": "line",
    }
    request = Request("id", [replayable(letter, "part:1").wanted()])
    order = Binding(replace(spec(), streams=(hits, *others))).order(request)
    times = [each.value["at"] for each in order.records if not each.problem]
    assert times == ([] if read is None else [read] * 2)
    assert all("still no record" in each.problem for each in order.records if each.problem)


@pytest.mark.parametrize(("value", "units"), [('{"d": 0.10, "ts": 1}', 10), ({"d": "0.1"}, 10)])
def test_decimals_of_lines_are_read_exactly(value: Any, units: int) -> None:
    chunk = replays._read(value, None, {"d": "decimal(6, 2)"})
    assert [each["d"] for each in chunk.values] == [units]
