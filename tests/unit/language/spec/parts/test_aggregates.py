"""``aggregate:``: functions, arguments, conditions, options."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.language.spec.parts.test_steps import computation


def _pipeline(aggregate: str, key: str = "path") -> str:
    return (
        "pipeline: p\nstreams: {hits: {source: injection, timestamp: ts}}\ncomputations:\n  c:\n"
        f"    input: {{hits: {{key: {key}}}}}\n    output: out\n"
        f"    window: {{tumbling: 1m}}\n    aggregate: {aggregate}\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count", AggregateSpec("x", "count")),
        ("{count: }", AggregateSpec("x", "count")),
        ("{sum: size}", AggregateSpec("x", "sum", "size")),
        ("{sum: size * 8}", AggregateSpec("x", "sum", "size * 8")),
        ("{sum: 1}", AggregateSpec("x", "sum", "1")),
        ("{count: {where: status >= 500}}", AggregateSpec("x", "count", "", "status >= 500")),
        (
            "{sum: cost, where: \"type == 'click'\"}",
            AggregateSpec("x", "sum", "cost", "type == 'click'"),
        ),
        ("{quantile: size, q: 0.9}", AggregateSpec("x", "quantile", "size", "", {"q": 0.9})),
        ("{q: 0.9, quantile: size}", AggregateSpec("x", "quantile", "size", "", {"q": 0.9})),
        (
            "{quantile: {of: size, q: 0.9, where: a}}",
            AggregateSpec("x", "quantile", "size", "a", {"q": 0.9}),
        ),
        (
            "{quantiles: size, q: [0.5, 0.9]}",
            AggregateSpec("x", "quantiles", "size", "", {"q": [0.5, 0.9]}),
        ),
        (
            "{stddev: size, population: true}",
            AggregateSpec("x", "stddev", "size", "", {"population": True}),
        ),
        ("{top_k: size, k: 3}", AggregateSpec("x", "top_k", "size", "", {"k": 3})),
        ("{mine:Agg: size, power: 2}", AggregateSpec("x", "mine:Agg", "size", "", {"power": 2})),
    ],
)
def test_every_way_to_write_an_aggregate(
    check: Any, folder: Any, text: str, expected: AggregateSpec
) -> None:
    (folder / "mine.py").write_text(
        "from millwheel.core.aggregates.base import Aggregator\nclass Agg(Aggregator):\n"
        "    def __init__(self, power): self.power = power\n"
    )
    (found,) = check(_pipeline(f"{{x: {text}}}")).computations[0].aggregates
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{x: summ}",
            ".x: unknown function 'summ'; did you mean 'sum'? Known: approx_count_distinct, ",
        ),
        ("{x: {summ: size}}", ".x: unknown function 'summ'"),
        ("{x: sum}", ".x: sum needs a field or an expression; write for example {sum: size}"),
        ("{x: {sum: size, max: size}}", ".x: names 2 functions (sum, max)"),
        ("{x: {sum: [size]}}", ".x.sum: must be text, not a list"),
        ("{x: {sum: size +}}", ".x.sum: column 6: this is not an expression"),
        ("{x: {count: {where: a = 1}}}", ".x.count.where: column 1: compare with =="),
        ("{x: {where: a}}", ".x: names no function"),
        ("{x: {}}", ".x: names no function"),
        ("{x: 3}", ".x: must be a map, not 3"),
        ("{x: {quantile: size}}", ".x: quantile needs `q`"),
        ("{x: {sum: size, k: 3}}", ".x: sum has no option 'k'"),
        ("{x: {top_k: size, k: many}}", ".x: top_k needs `k`"),
        (
            "{path: count}",
            ".path: every row already has a field 'path' (path, window_start, window_end)",
        ),
        ("{window_end: count}", ".window_end: every row already has a field 'window_end'"),
        ("{a-b: count}", ".a-b: 'a-b' cannot be the name of a field"),
        ("[count]", ": must be a map, not a list"),
    ],
)
def test_mistakes_in_an_aggregate_are_named(problems: Any, text: str, expected: str) -> None:
    (found,) = problems(_pipeline(text))
    assert found.startswith(f"pipeline.yaml:8: computations.c.aggregate{expected}")


def test_a_class_that_is_no_aggregator_is_named(problems: Any) -> None:
    (found,) = problems(_pipeline("{x: {detectors:Plain: size}}"))
    assert "is not an Aggregator" in found


def test_the_key_of_several_fields_takes_their_names(problems: Any) -> None:
    (found,) = problems(_pipeline("{b: count}", "[a, b]"))
    assert "(a, b, window_start, window_end)" in found


RESULTS = {"aggregate": "{n: count, total: {sum: size}}", "window": "{tumbling: 1m}"}


def test_fields_are_made_of_results_and_results_left_out(check: Any) -> None:
    text = computation(**RESULTS, then="{mean: total / n, twice: mean * 2}", having="twice > n")
    work = check(text).computations[0].work
    assert (dict(work.then), work.having) == (
        {"mean": "total / n", "twice": "mean * 2"},
        "twice > n",
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"then": "{mean: totl / n}"}, "a result has no field 'totl'; did you mean 'total'?"),
        ({"having": "size > 3"}, "a result has no field 'size'"),
        ({"then": "{n: total}"}, "every row already has a field 'n'"),
        ({"then": "{a: b, b: n}"}, "a result has no field 'b'"),
        ({"having": "n > 1", "queryable": "latest"}, "leave out having or queryable"),
        ({"having": "n > 1", "aggregate": ""}, "having is about the results of aggregate"),
        (
            {"having": "n > 1", "allowed_lateness": "1m", "accumulation": "accumulating"},
            "would stand for ever, as nothing replaces it; write accumulation: retracting",
        ),
        ({"filter": "n > 1"}, "where if it is about records, as having if it is about results"),
        ({"map": "{a: n}"}, "or write the fields as then if they are made of results"),
    ],
)
def test_what_cannot_be_made_of_results_is_told(
    problems: Any, fields: dict[str, str], sentence: str
) -> None:
    found = problems(computation(**{**RESULTS, **fields}))
    assert any(sentence in each for each in found), found


def test_a_change_log_with_a_condition_takes_back(check: Any) -> None:
    text = computation(aggregate="{n: count}", having="n > 2")
    assert check(text).computations[0].firing.accumulation == "retracting"
