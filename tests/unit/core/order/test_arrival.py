"""Where the order of arrival may decide, it is said in words, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.order.arrival import VERSIONS, by_arrival, reasons_of, several_partitions
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.language.spec.callback_code import LoadedCode
from tests.search.script import FOLDER, load

HEAD = """
pipeline: p
streams:
  hits: {source: {files: {path: %s, format: jsonl}}, timestamp: at}
computations:
"""
ORDERS = (
    "  c: {input: {%s: {key: %s}}, %scallback: callbacks:Orders, options: {out: c}, output: c}\n"
)
COUNTS = (
    "  w: {input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}, output: w%s}\n"
)
FREE = "  f: {input: {hits: {key: u}}, callback: callbacks:Free, options: {out: f}, output: f}\n"


def _reasons(computations: str, path: str = "in.jsonl") -> dict[str, str]:
    graph = build_graph(load(HEAD % path + computations))
    return by_arrival(graph, LoadedCode(lambda name: load_object(name, str(FOLDER))))


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("files", {"path": "in.jsonl"}, ""),
        ("files", {"path": "in/*.jsonl"}, "s may have several files"),
        ("files", {"path": "in/"}, "s may have several files"),
        ("files", {"path": ["a.jsonl", "b.jsonl"]}, "s may have several files"),
        ("generator", {}, ""),
        ("generator", {"partitions": 3}, "s has several partitions"),
        ("kafka", {"topic": "t"}, "s may have several partitions"),
        ("injection", {}, "records of s are sent in"),
    ],
)
def test_a_source_says_why_its_records_may_have_no_order(
    kind: str, options: dict[str, Any], why: str
) -> None:
    assert several_partitions(StreamSpec("s", SourceSpec(kind, options))) == why


@pytest.mark.parametrize(
    ("computations", "path", "why"),
    [
        pytest.param(ORDERS % ("hits", "k", ""), "in.jsonl", "", id="one file"),
        pytest.param(
            ORDERS % ("hits", "k", ""),
            "'*.jsonl'",
            "hits may have several files",
            id="several files",
        ),
        pytest.param(
            ORDERS % ("hits", "k", "order_by: timestamp, "), "'*.jsonl'", "", id="order_by"
        ),
        pytest.param(
            FREE + ORDERS % ("f", "k", ""),
            "in.jsonl",
            "several keys of f may meet in one",
            id="another key",
        ),
        pytest.param(
            COUNTS % "" + ORDERS % ("w", "k", ""),
            "'*.jsonl'",
            "its timers come when the watermark does, and w when it is ready",
            id="timers behind a window",
        ),
        pytest.param(COUNTS % "", "'*.jsonl'", "", id="window"),
    ],
)
def test_a_callback_says_why_arrival_may_decide(computations: str, path: str, why: str) -> None:
    assert _reasons(computations, path).get("c", "") == why


@pytest.mark.parametrize(
    ("work", "why"),
    [
        pytest.param("input: {hits: {key: k}}, aggregate: {n: count}", VERSIONS, id="change log"),
        pytest.param("input: {hits: {key: k}, h: {key: k}}, join: left", VERSIONS, id="left join"),
        pytest.param("input: {hits: {key: k}, h: {key: k}}, join: inner", "", id="inner join"),
    ],
)
def test_what_emits_versions_says_so(work: str, why: str) -> None:
    also = "  h: {input: {hits: {key: k}}, filter: k == 'a', output: h}\n"
    assert _reasons(f"{also}  c: {{{work}, output: c}}\n").get("c", "") == why


def test_a_sink_knows_all_that_arrival_decides_before_it() -> None:
    found = _reasons(
        COUNTS % ", trigger: {repeat: {after_count: 3}}, accumulation: accumulating" + FREE,
        "'*.jsonl'",
    )
    graph = build_graph(
        load(
            HEAD % "'*.jsonl'"
            + COUNTS % ""
            + FREE
            + "sinks:\n  w: {stdout: {}}\n  f: {stdout: {}}\n"
        )
    )
    assert reasons_of("sink.w", graph, found) == ("w: its windows fire not only by the watermark",)
    assert reasons_of("sink.f", graph, found) == ("f: hits may have several files",)
