"""Dead letters as values: what can be tried again, and how they are grouped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.replays import KEY, LINE, RECORD, ReplayOrder, Request, as_key
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import DEAD_LETTERS, InputSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.engine import letters
from millwheel.engine.letters import Binding, Letter, ask, asked_for, grouped, replayable
from millwheel.testing import PipelineHarness
from tests.computations import computation_spec
from tests.unit.engine.workers.loop.test_replaying import numbers, spec


def letter(what: str, **given: object) -> Letter:
    fields: dict[str, object] = {
        "computation": "visits",
        "reason": "no",
        "stream": "hits",
        "timestamp": 1,
        "what": what,
    }
    return Letter(**{**fields, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "again"),
    [
        (letter("record"), RECORD),
        (letter("record", timestamp=None), ""),
        (letter("record", stream=""), ""),
        (letter("key of hits"), KEY),
        (letter("line", computation="source.hits"), LINE),
        (letter("line"), ""),
        (letter("timer"), ""),
        (letter("window"), ""),
        (letter("production"), ""),
        (letter("injection", computation="source.hits"), ""),
        (letter(""), ""),
    ],
)
def test_records_keys_and_lines_can_be_tried_again_and_nothing_else(
    given: Letter, again: str
) -> None:
    assert given.again == again


def test_a_letter_is_of_its_computation_and_a_line_of_its_stream() -> None:
    line = letter("line", computation="source.hits", reason="no JSON")
    for computation, reason in [("hits", ""), ("source.hits", "JSON"), ("", "")]:
        assert line.matches(computation, reason)
    for computation, reason in [("visits", ""), ("hits", "CSV")]:
        assert not line.matches(computation, reason)


def test_a_record_that_fails_again_keeps_its_history() -> None:
    again = letter("record", attempts=3, id="f:7").requested()
    assert [(past.reason, past.attempts) for past in again.history] == [("no", 3)]
    assert again.letter == "f:7"


def test_letters_are_grouped_by_computation_and_kind_the_most_first() -> None:
    one = letter("record", error="TypeError", location="a.py:1", id="1", written_s=5.0)
    two = letter("record", error="TypeError", location="a.py:1", id="2", written_s=3.0)
    other = letter("record", error="KeyError", location="a.py:2", id="3", written_s=9.0)
    first, second = grouped([other, one, two], frozenset({"2"}))
    assert (first.count, first.replayed, first.first_s, first.last_s) == (2, 1, 3.0, 5.0)
    assert (second.count, second.replayed, second.example) == (1, 0, other)


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
        replayable(row, f"part:{number}").requested() for number, row in enumerate((letter, broken))
    ]
    order = Binding(spec()).order(Request("id", wanted))
    assert [(each.node, each.key, each.timestamp, each.value) for each in order.records[:2]] == [
        ("counting", "ann", 5, good),
        ("other", 7, 5, good),
    ]
    (left,) = order.records[2:]
    assert (left.node, left.blame, left.value) == ("counting", "source.hits", "{broken")
    assert left.problem.startswith("still not a record")
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
    order = Binding(planned_spec).order(Request("id", [replayable(letter, "part:0").requested()]))
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
    request = Request("id", [replayable(letter, "part:1").requested()])
    order = Binding(replace(spec(), streams=(hits, *others))).order(request)
    times = [each.value["at"] for each in order.records if not each.problem]
    assert times == ([] if read is None else [read] * 2)
    assert all("still not a record" in each.problem for each in order.records if each.problem)


@pytest.mark.parametrize(("value", "units"), [('{"d": 0.10, "ts": 1}', 10), ({"d": "0.1"}, 10)])
def test_decimals_of_lines_are_read_exactly(value: Any, units: int) -> None:
    chunk = letters._read(value, None, {"d": "decimal(6, 2)"})
    assert [each["d"] for each in chunk.values] == [units]
