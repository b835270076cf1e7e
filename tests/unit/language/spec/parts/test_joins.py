"""``join`` and ``enrich``: what two inputs need to find each other."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.work import EnrichSpec, JoinSpec

HEAD = """
pipeline: p
streams:
  orders: {source: {injection: {}}, timestamp: at, id: id}
  prices: {source: {injection: {}}, timestamp: at, id: id}
  window_end: {source: {injection: {}}, timestamp: at, id: id}
computations:
  both:
    output: out
"""
TAIL = "sinks: {out: {stdout: {}}, window_end: {stdout: {}}}\n"
TWO = "input: {orders: {key: product}, prices: {key: product}}"


def text(*fields: str) -> str:
    return HEAD + "".join(f"    {field}\n" for field in fields) + TAIL


@pytest.mark.parametrize(
    "fields",
    [
        (TWO, "join: left", "window: {tumbling: 1m}"),
        (TWO, "enrich: {with: prices}"),
        (TWO, "enrich: {with: prices, as: price, missing: drop, as_of: arrival}"),
    ],
)
def test_two_streams_with_like_keys_are_joined(check: Any, fields: tuple[str, ...]) -> None:
    [computation] = check(text(*fields)).computations
    work = computation.work
    assert isinstance(work, EnrichSpec if "enrich" in fields[1] else JoinSpec)
    if isinstance(work, EnrichSpec):
        assert (work.stream, work.waits) == ("prices", "arrival" not in fields[1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((TWO, "join: inner"), "a join pairs the records of a window"),
        (
            ("input: {orders: {key: product}}", "join: inner", "window: {tumbling: 1m}"),
            "takes two inputs, not 1",
        ),
        (
            (
                "input: {orders: {key: [a, b]}, prices: {key: a}}",
                "join: inner",
                "window: {tumbling: 1m}",
            ),
            "give both keys the same number of fields",
        ),
        ((TWO, "join: inner", "window: {tumbling: 1m}", "where: a > 1"), "leave out where"),
        ((TWO, "join: sideways", "window: {tumbling: 1m}"), "must be one of"),
        ((TWO, "enrich: {with: price}"), "did you mean 'prices'?"),
        ((TWO, "enrich: {missing: drop}"), "which input is added"),
        (
            (TWO, "enrich: {with: prices, as: product}"),
            "'product' would replace the key of the records",
        ),
        ((TWO, "enrich: {with: prices}", "window: {tumbling: 1m}"), "leave out window"),
        (
            (
                "input: {orders: {key: a}, window_end: {key: a}}",
                "join: inner",
                "window: {tumbling: 1m}",
            ),
            "a stream is called 'window_end'",
        ),
    ],
)
def test_what_cannot_find_each_other_is_told_with_the_fix(
    problems: Any, fields: tuple[str, ...], words: str
) -> None:
    assert any(words in problem for problem in problems(text(*fields)))
