"""Values that a window's code cannot use, through the real runtime: each becomes a dead letter, the
others count."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.testing import PipelineHarness

CODE = """
    from millwheel import Aggregator, Trigger, Window

    class Windows:
        def __init__(self, what):
            self.what = what

        def assign(self, timestamp):
            if self.what == "raises":
                raise LookupError("no calendar")
            made = {"none": None, "text": ["x"], "backward": [(5, 1)], "float": [(0.0, 6e7)],
              "one": Window(0, 60)}
            return made[self.what]

    class Merging:
        def __init__(self, what):
            self.what = what

        def assign(self, timestamp):
            return [Window(timestamp, timestamp + 10)]

        def merge(self, windows):
            made = {"none": None, "flat": windows, "lost": [], "twice": [windows, windows]}
            return made[self.what]

    class Failing(Trigger):
        def __init__(self, what):
            self.what = what

        def start(self):
            return self.maybe("start") or (object() if self.what == "object" else 0)

        def add(self, state, records, size, moment):
            return self.maybe("add") or state

        def ready(self, state, moment):
            return self.maybe("ready") or moment.complete

        def maybe(self, place):
            if self.what == place:
                raise LookupError(place)

    class Sum(Aggregator):
        def __init__(self, what=""):
            self.what = what

        def check(self, value, name):
            if self.what == "check" and value == 13:
                raise LookupError("check")
            return value

        def create(self):
            return 0

        def add(self, acc, value, timestamp):
            if self.what == "add" and value == 13:
                raise LookupError("add")
            return object() if self.what == "state" and value == 13 else acc + value

        def merge(self, acc, other):
            return acc + other

        def result(self, acc):
            if self.what == "result" and acc >= 13:
                raise LookupError("result")
            return object() if self.what == "object" and acc >= 13 else acc
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[dict[Any, Any], list[Any]]]:
    def run(values: list[Any], **computation: Any) -> tuple[dict[Any, Any], list[Any]]:
        """(result by key, [value, reason] of the dead letters); crashes on the way."""
        (tmp_path / "own.py").write_text(textwrap.dedent(CODE))
        given = {
            "input": {"s": {"key": "k"}},
            "window": {"tumbling": "1m"},
            "output": "o",
            **computation,
        }
        document = {
            "pipeline": "p",
            "streams": {"s": {"source": {"injection": {}}, "timestamp": "t"}},
            "computations": {"c": given},
        }
        (tmp_path / "p.yaml").write_text(json.dumps(document))
        with PipelineHarness(tmp_path / "p.yaml") as harness:
            for value in values:
                harness.push("s", value)
            harness.crash()
            harness.finish()
            letters = [
                (letter["value"], letter["reason"]) for letter in harness.read("dead_letters")
            ]
            return {row["k"]: row["r"] for row in harness.read("o")}, letters

    return run


Run = Callable[..., tuple[dict[Any, Any], list[Any]]]

NUMBER = "a finite number"
ORDERED = "a number or text"
NOT_NUMBERS = ["text", True, None, [1], {"a": 1}, float("nan"), float("inf"), b"x"]
NOT_ORDERED = [True, None, [1], {"a": 1}, float("nan"), b"x"]
REFUSED: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "count": ({}, [], ""),
    "sum": ({}, NOT_NUMBERS, NUMBER),
    "mean": ({}, NOT_NUMBERS, NUMBER),
    "variance": ({}, NOT_NUMBERS, NUMBER),
    "stddev": ({}, NOT_NUMBERS, NUMBER),
    "quantile": ({"q": 0.5}, NOT_NUMBERS, NUMBER),
    "quantiles": ({"q": [0.5]}, NOT_NUMBERS, NUMBER),
    "min": ({}, NOT_ORDERED, ORDERED),
    "max": ({}, NOT_ORDERED, ORDERED),
    "top_k": ({"k": 2}, NOT_ORDERED, ORDERED),
    "first": ({}, [], ""),
    "last": ({}, [], ""),
    "collect": ({}, [], ""),
    "max_by": ({}, NOT_ORDERED, ORDERED),
    "min_by": ({}, NOT_ORDERED, ORDERED),
    "top_rows": ({"k": 2}, NOT_ORDERED, ORDERED),
    "count_distinct": (
        {},
        [True, None, {"a": 1}, float("nan")],
        "text, a number, bytes or a list of them",
    ),
    "approx_count_distinct": (
        {},
        [True, None, [1], {"a": 1}, float("nan")],
        "text, a number or bytes",
    ),
}
"""For each function its options, and what it refuses."""


def test_every_function_is_in_the_table() -> None:
    """But for those that read no field: first_row and last_row."""
    assert set(REFUSED) == set(FUNCTIONS) - {"first_row", "last_row"}


# outputs.py


@pytest.mark.parametrize("function", sorted(REFUSED))
def test_a_value_that_a_function_cannot_use_is_a_dead_letter_with_its_record(
    run: Run, function: str
) -> None:
    options, refused, wanted = REFUSED[function]
    records = [{"k": f"k{index}", "v": value, "t": 1} for index, value in enumerate(refused)]
    rows, letters = run(
        [{"k": "good", "v": 2, "t": 1}, *records], aggregate={"r": {function: "v", **options}}
    )
    assert set(rows) == {"good"}
    assert sorted(value["k"] for value, _ in letters) == sorted(record["k"] for record in records)
    for value, reason in letters:
        kind = type(refused[int(value["k"][1:])]).__name__
        assert reason.startswith(f"{function} of field 'v' needs {wanted}, not {kind}")
        assert reason.endswith("(aggregate 'r' of stream 's')")


@pytest.mark.parametrize("function", sorted(set(REFUSED) - {"count"}))
def test_a_record_without_the_field_is_a_dead_letter(run: Run, function: str) -> None:
    rows, [(value, reason)] = run(
        [{"k": "good", "v": 2, "t": 1}, {"k": "bad", "t": 1}],
        aggregate={"r": {function: "v", **REFUSED[function][0]}},
    )
    assert set(rows) == {"good"}
    assert value == {"k": "bad", "t": 1}
    assert reason == "the record has no field 'v'; it has: k, t (aggregate 'r' of stream 's')"


@pytest.mark.parametrize("function", sorted(set(REFUSED) - {"count"}))
@pytest.mark.parametrize("count_first", [True, False])
def test_what_a_missing_field_is_does_not_depend_on_who_reads_it_too(
    run: Run, function: str, count_first: bool
) -> None:
    parts = [("n", {"count": "v"}), ("r", {function: "v", **REFUSED[function][0]})]
    records = [{"k": "good", "v": 2, "t": 1}, {"k": "bad", "t": 1}]
    rows, [(value, reason)] = run(
        records, aggregate=dict(parts if count_first else reversed(parts))
    )
    assert set(rows) == {"good"}
    assert value == {"k": "bad", "t": 1}
    assert reason == "the record has no field 'v'; it has: k, t (aggregate 'r' of stream 's')"


def test_counts_of_a_missing_field_stand_side_by_side(run: Run) -> None:
    rows, letters = run([{"k": "a", "t": 1}], aggregate={"n": {"count": "v"}, "r": {"count": "v"}})
    assert (rows, letters) == ({"a": 0}, []), "there is nothing to count"


@pytest.mark.parametrize(
    "function", ["min", "max", "first", "last", "top_k", "collect", "count_distinct"]
)
def test_a_number_that_no_state_can_hold_is_a_dead_letter(run: Run, function: str) -> None:
    records = [{"k": "good", "v": 2, "t": 1}, {"k": "bad", "v": 2**63, "t": 1}]
    rows, [(value, reason)] = run(
        records, aggregate={"r": {function: "v * v", **REFUSED[function][0]}}
    )
    assert set(rows) == {"good"}
    assert value["k"] == "bad"
    assert "needs whole numbers of at most 64 bits" in reason


@pytest.mark.parametrize("where", ["v > 3", "startswith(v, 'x')", "missing == 1", "1 / v > 0"])
def test_a_condition_that_cannot_be_judged_is_a_dead_letter(run: Run, where: str) -> None:
    bad = {"v > 3": "text", "startswith(v, 'x')": 5, "missing == 1": 1, "1 / v > 0": 0}[where]
    _, letters = run([{"k": "bad", "v": bad, "t": 1}], aggregate={"r": "count"}, where=where)
    assert [value for value, _ in letters] == [{"k": "bad", "v": bad, "t": 1}]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raises", "LookupError: no calendar"),
        ("none", "returned None; it must return a list of (start, end) pairs"),
        ("text", "returned ['x']; it must return a list of (start, end) pairs"),
        ("one", "it must return a list of (start, end) pairs"),
        ("backward", "(5, 1): the start must lie before its end"),
        ("float", "(0.0, 60000000.0): start and end must be whole numbers of µs"),
    ],
)
def test_windows_that_are_none_make_dead_letters(run: Run, what: str, reason: str) -> None:
    record = {"k": "a", "v": 1, "t": 1}
    rows, [(value, said)] = run(
        [record], window={"custom": "own:Windows", "with": {"what": what}}, aggregate={"r": "count"}
    )
    assert (rows, value) == ({}, record)
    assert reason in said


@pytest.mark.parametrize("what", ["none", "flat", "lost", "twice"])
def test_windows_that_merge_into_nonsense_make_dead_letters(run: Run, what: str) -> None:
    record = {"k": "a", "v": 1, "t": 1}
    rows, [(value, reason)] = run(
        [record], window={"custom": "own:Merging", "with": {"what": what}}, aggregate={"r": "count"}
    )
    assert (rows, value) == ({}, record)
    assert "it must return groups (lists) in which each window is once" in reason


@pytest.mark.parametrize("what", ["start", "add", "ready"])
def test_a_trigger_that_raises_makes_dead_letters_with_their_records(run: Run, what: str) -> None:
    record = {"k": "a", "v": 1, "t": 1}
    trigger = {"custom": {"class": "own:Failing", "with": {"what": what}}}
    rows, [(value, reason)] = run([record], trigger=trigger, aggregate={"r": "count"})
    assert (rows, value) == ({}, record)
    assert reason == f"aggregation failed: LookupError: {what}"


@pytest.mark.parametrize("what", ["check", "add"])
def test_an_aggregator_that_raises_on_a_value_leaves_the_others(run: Run, what: str) -> None:
    records = [{"k": "a", "v": 1, "t": 1}, {"k": "a", "v": 13, "t": 2}, {"k": "a", "v": 4, "t": 3}]
    rows, letters = run([records], aggregate={"r": {"own:Sum": "v", "what": what}})
    assert rows == {"a": 5}
    assert letters == [(records[1], f"aggregation failed: LookupError: {what}")]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("result", "window 0,60000000 could not fire: LookupError: result"),
        (
            "object",
            (
                "the result of a window cannot be carried: Encoding objects of type object is"
                " unsupported"
            ),
        ),
    ],
)
def test_a_window_that_cannot_speak_stops_no_other(run: Run, what: str, reason: str) -> None:
    records = [{"k": "bad", "v": 13, "t": 1}, {"k": "good", "v": 2, "t": 1}]
    rows, letters = run([records], aggregate={"r": {"own:Sum": "v", "what": what}})
    assert rows == {"good": 2}
    assert [said for _, said in letters] == [reason]


def test_an_accumulator_that_cannot_be_stored_is_the_letter_of_its_record(run: Run) -> None:
    records = [{"k": "a", "v": 13, "t": 1}, {"k": "a", "v": 2, "t": 1}]
    rows, [(value, reason)] = run([records], aggregate={"r": {"own:Sum": "v", "what": "state"}})
    assert rows == {"a": 2}
    assert value == records[0]
    assert (
        "aggregation failed: RecordError: Sum.add gave an accumulator that is not plain data:"
        " object" in reason
    )


def test_the_state_of_a_trigger_that_cannot_be_stored_is_told_and_stops_no_worker(run: Run) -> None:
    trigger = {"custom": {"class": "own:Failing", "with": {"what": "object"}}}
    _, [(_, reason)] = run([{"k": "a", "v": 13, "t": 1}], aggregate={"r": "count"}, trigger=trigger)
    assert (
        "the state of window 0,60000000 cannot be stored, so its newest records are lost" in reason
    )
    assert "aggregators and triggers must keep plain data" in reason


@pytest.mark.parametrize("productions", ["strong", "weak"])
@pytest.mark.parametrize("together", [False, True])
def test_a_dead_letter_names_the_stream_and_the_aggregate_that_cannot_use_the_value(
    tmp_path: Path, productions: str, together: bool
) -> None:
    """Of several streams and aggregates, however the records come."""
    document = {
        "pipeline": "p",
        "streams": {
            name: {"source": {"injection": {}}, "timestamp": "t"} for name in ("hits", "views")
        },
        "computations": {
            "c": {
                "input": {"hits": {"key": "k"}, "views": {"key": "k"}},
                "window": {"session": "1m"},
                "aggregate": {"n": "count", "size": {"sum": "size"}, "top": {"max": "rank"}},
                "productions": productions,
                "output": "o",
            }
        },
    }
    (tmp_path / "p.yaml").write_text(json.dumps(document))
    bad = {"k": "a", "t": 1, "size": "much", "rank": 1}, {"k": "a", "t": 1, "size": 1, "rank": [2]}
    pushed = {"hits": [{"k": "a", "t": 1, "size": 1, "rank": 1}, bad[0]], "views": [bad[1], bad[0]]}
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for stream, records in pushed.items():
            for bundle in [records] if together else [[record] for record in records]:
                harness.push(stream, bundle)
        harness.finish()
        letters = sorted(
            (letter["stream"], letter["reason"].rpartition(" (")[2])
            for letter in harness.read("dead_letters")
        )
        assert [row["n"] for row in harness.read("o")] == [1]
    assert letters == [
        ("hits", "aggregate 'size' of stream 'hits')"),
        ("views", "aggregate 'size' of stream 'views')"),
        ("views", "aggregate 'top' of stream 'views')"),
    ]


OF_INPUT = """
pipeline: p
streams:
  a: {source: injection, timestamp: at, fields: %s}
  b: {source: injection, timestamp: at, fields: %s}
computations:
  sums: {input: {a: {key: k}}, window: {of: input}, aggregate: {n: {sum: n}}, output: sums}
  both: {input: {a: {key: k}, b: {key: k}}, window: {of: input}, join: inner, output: both}
sinks: {sums: {stdout: {}}, both: {stdout: {}}}
"""


@pytest.mark.parametrize(
    "fields", ["{at: int}", "{at: int, k: str, n: int, window_start: int, window_end: int}"]
)
def test_a_record_that_names_no_window_is_a_letter_and_the_others_count(
    tmp_path: Path, fields: str
) -> None:
    (tmp_path / "p.yaml").write_text(OF_INPUT % (fields, fields))
    right = {"at": 5, "k": "x", "n": 1, "window_start": 0, "window_end": 10}
    nameless = {name: value for name, value in right.items() if name != "window_end"}
    wrong = [{**right, "window_end": 0}, {**right, "window_start": None}, nameless]
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for value in (right, *wrong, right):
            harness.push("a", value)
        for value in (*wrong, right):
            harness.push("b", value)
        harness.finish()
        assert harness.take("sums") == [{"k": "x", "window_start": 0, "window_end": 10, "n": 2}]
        assert len(harness.take("both")) == 2
        letters = harness.take("dead_letters")
    assert len(letters) == 9
    assert all("window: {of: input}" in letter["reason"] for letter in letters)
