from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.errors import PipelineError, RecordError
from millwheel.testing import PipelineHarness

VALUES = st.tuples(
    st.integers(0, 2), st.sampled_from(["x", "y", 1, 1.0, 0.0, -0.0]), st.integers(0, 1)
)
RECORD = st.builds(
    lambda values, names: {name: dict(zip("abc", values, strict=True))[name] for name in names},
    VALUES,
    st.permutations("abc"),
)
SPECS = [
    AggregateSpec("best", "max_by", options={"by": "a"}),
    AggregateSpec("least", "min_by", options={"by": ["b"]}),
    AggregateSpec("first", "first_row"),
    AggregateSpec("last", "last_row"),
    AggregateSpec("top", "top_rows", options={"by": ["b desc", "a asc"], "k": 3}),
    AggregateSpec("ranked", "top_rows", options={"by": ["a * 2"], "k": 2, "rank": "place"}),
    AggregateSpec("nulls", "top_rows", options={"by": ["nullif(a, 1) nulls last", "c"], "k": 2}),
]


def result(pairs: list[tuple[Any, int]], parts: list[int]) -> str:
    """Of records in accumulators of some sizes, merged."""
    aggregation = compile_aggregation(SPECS, compile_expression)
    whole, begin = aggregation.create(), 0
    for size in [*parts, len(pairs)]:
        some = pairs[begin : begin + size]
        begin += size
        acc = aggregation.create()
        if some:
            prepared = [aggregation.prepare(value) for value, _ in some]
            acc = aggregation.add_many(acc, prepared, [time for _, time in some])
        whole = aggregation.merge(whole, acc)
    return repr(aggregation.result(whole))


@given(
    st.lists(st.tuples(RECORD, st.integers(0, 2)), max_size=8),
    st.lists(st.integers(0, 3), max_size=4),
    st.randoms(use_true_random=False),
)
def test_no_order_and_no_division_of_the_records_shows(
    pairs: list[tuple[Any, int]], parts: list[int], chance: random.Random
) -> None:
    mixed = list(pairs)
    chance.shuffle(mixed)
    assert result(mixed, parts) == result(pairs, [])


def chosen(function: str, options: dict[str, Any], records: list[dict[str, Any]]) -> Any:
    aggregation = compile_aggregation(
        [AggregateSpec("x", function, options=options)], compile_expression
    )
    acc = aggregation.create()
    for record in records:
        acc = aggregation.add_many(acc, [aggregation.prepare(record)], [record["at"]])
    return aggregation.result(acc)["x"]


BIDS = [
    {"who": "ada", "price": 3, "at": 10},
    {"who": "bob", "price": 7, "at": 30},
    {"who": "cy", "price": 7, "at": 20},
    {"who": "dan", "price": 1, "at": 40},
]


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        ("max_by", {"by": "price"}, ["cy"]),
        ("min_by", {"by": "price"}, ["dan"]),
        ("min_by", {"by": "price % 7"}, ["cy"]),
        ("max_by", {"by": ["price", "at"]}, ["bob"]),
        ("first_row", {}, ["ada"]),
        ("last_row", {}, ["dan"]),
        ("top_rows", {"by": "price desc", "k": 2}, ["cy", "bob"]),
        ("top_rows", {"by": ["price desc", "who"], "k": 3}, ["bob", "cy", "ada"]),
        ("top_rows", {"by": ["who  desc "], "k": 9}, ["dan", "cy", "bob", "ada"]),
        ("top_rows", {"by": ["-price", "at desc"], "k": 2}, ["bob", "cy"]),
        ("top_rows", {"by": "nullif(price, 3) nulls first", "k": 2}, ["ada", "dan"]),
        ("top_rows", {"by": "nullif(price, 3) desc nulls first", "k": 2}, ["ada", "cy"]),
        ("top_rows", {"by": "nullif(price, 7) nulls last", "k": 3}, ["dan", "ada", "cy"]),
        (
            "top_rows",
            {"by": ["nullif(price, 7) desc  nulls last ", "at desc"], "k": 3},
            ["ada", "dan", "bob"],
        ),
    ],
)
def test_an_order_is_a_list_of_expressions_each_with_its_direction_and_then_the_time(
    function: str, options: dict[str, Any], expected: list[str]
) -> None:
    rows = chosen(function, options, BIDS)
    assert [row["who"] for row in (rows if function == "top_rows" else [rows])] == expected
    assert chosen(function, options, []) == ([] if function == "top_rows" else None)


def test_a_rank_is_a_field_more_and_the_record_stays_as_it_is() -> None:
    rows = chosen("top_rows", {"by": "price", "k": 2, "rank": "place"}, BIDS)
    assert [(row["who"], row["place"]) for row in rows] == [("dan", 1), ("ada", 2)]
    assert all("place" not in bid for bid in BIDS)


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        ("top_rows", {"by": "a"}, "top_rows needs `k`, a whole number"),
        ("top_rows", {"by": [], "k": 1}, "needs a field or an expression to order by"),
        ("top_rows", {"by": "a", "k": 1, "rank": "the place"}, "`rank` is the name of a field"),
        ("max_by", {"by": ""}, "max_by needs a field or an expression to order by"),
        ("max_by", {}, "max_by needs a field or an expression to order by"),
        ("max_by", {"by": [3]}, r"not \[3\]; write {max_by: price}"),
        ("last_row", {"by": "a"}, "last_row has no option 'by'"),
    ],
)
def test_settings_that_make_no_order_are_refused(
    function: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_aggregator(function, options)


@pytest.mark.parametrize(
    ("value", "sentence"), [(None, "max_by of field 'a' needs a number or text"), ([], "not list")]
)
def test_a_value_without_a_place_in_the_order_is_an_error_of_the_record(
    value: Any, sentence: str
) -> None:
    aggregation = compile_aggregation([SPECS[0]], compile_expression)
    with pytest.raises(RecordError, match=sentence):
        aggregation.prepare({"a": value})


def test_a_null_without_a_place_says_how_to_give_it_one() -> None:
    aggregation = compile_aggregation([SPECS[4]], compile_expression)
    with pytest.raises(RecordError, match=r"'b desc nulls last' \(or first\) gives nulls"):
        aggregation.prepare({"a": 1, "b": None})


PIPELINE = """
pipeline: p
streams:
  bids: {source: {files: {path: bids.jsonl, format: jsonl}}, timestamp: at}
computations:
  c:
    input: {bids: {key: who}}
    window: {tumbling: 10s}
    aggregate:
      n: {sum: price}
      best: {max_by: price}
      first: first_row
      last: {last_row: {where: "price > 1"}}
      top: {top_rows: [price desc, at], k: 2, rank: place}
    output: out
sinks: {out: {stdout: {}}}
"""


@pytest.mark.parametrize("crash_every", [None, 1])
def test_a_window_of_a_pipeline_has_them(tmp_path: Path, crash_every: int | None) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    bids = [{**bid, "who": "a", "nr": nr} for nr, bid in enumerate(BIDS)]
    with PipelineHarness(tmp_path / "p.yaml", crash_every=crash_every) as harness:
        for bid in bids:
            harness.push("bids", bid)
        harness.finish()
        (row,) = harness.read("out")
    assert (row["best"], row["first"], row["last"]) == (bids[2], bids[0], bids[1])
    assert row["n"] == 18, "what reads the same field as an order has its own value"
    assert [(each["nr"], each["place"]) for each in row["top"]] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{max_by: price +}", "11: computations.c.aggregate.best: column 7"),
        ("{last_row: price}", "last_row is a whole record; write nothing behind it"),
        ("{top_rows: [price desc]}", "top_rows needs `k`"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("{max_by: price}", text))
    with pytest.raises(PipelineError, match=sentence):
        PipelineHarness(tmp_path / "p.yaml")


def test_all_of_them_take_records() -> None:
    assert {name for name, function in FUNCTIONS.items() if function.of_rows} == {
        spec.function for spec in SPECS
    }
