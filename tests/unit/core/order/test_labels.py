"""Labels are carried where a callback with timers is fed by one source through what keeps the order
of its records."""

from __future__ import annotations

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.order.labels import NO_USE, Labels, LabelUse, labels_of
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec.callback_code import LoadedCode
from tests.search.script import FOLDER, load

FOLLOWS = LabelUse(takes=True, follows=True)
WAITS = LabelUse(takes=True)
HEAD = """
pipeline: p
streams:
  hits: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: at}
  more: {source: {files: {path: more.jsonl, format: jsonl}}, timestamp: at}
  sent: {source: {injection: {}}, timestamp: at}
computations:
"""
ORDERS = "callback: callbacks:Orders, options: {out: %s}, output: %s}\n"


def _callback(name: str, given: str, key: str = "k", more: str = "") -> str:
    return f"  {name}: {{input: {{{given}: {{key: {key}}}}}, {more}{ORDERS % (name, name)}"


def _labels(computations: str) -> Labels:
    spec = load(HEAD + computations)
    return labels_of(build_graph(spec), LoadedCode(lambda name: load_object(name, str(FOLDER))))


def test_a_callback_follows_the_labels_of_its_only_source() -> None:
    found = _labels(_callback("c", "hits"))
    assert (found.of("c"), found.streams) == (FOLLOWS, {"hits"})


def test_a_callback_behind_others_waits_and_those_give_labels() -> None:
    steps = "  s: {input: {hits: {key: k}}, filter: 'n < 7', output: s}\n"
    found = _labels(steps + _callback("c", "s", "u") + _callback("d", "c"))
    assert found.of("s") == LabelUse(takes=True, follows=True, gives=True)
    assert found.of("c") == LabelUse(takes=True, gives=True)
    assert found.of("d") == WAITS


@pytest.mark.parametrize(
    "computations",
    [
        pytest.param(_callback("c", "sent"), id="records that are sent in"),
        pytest.param(_callback("c", "hits", more="order_by: timestamp, "), id="order_by"),
        pytest.param(
            _callback("c", "hits").replace("Orders", "OrdersTogether"), id="process_batch"
        ),
        pytest.param(_callback("c", "hits: {key: k}, more"), id="two streams"),
        pytest.param(
            "  s: {input: {hits: {key: k}}, filter: 'n < 7', output: s}\n", id="no timers"
        ),
        pytest.param(
            "  w: {input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}, output:"
            " w}\n" + _callback("c", "w"),
            id="behind a window",
        ),
    ],
)
def test_nothing_is_labelled_where_labels_decide_nothing(computations: str) -> None:
    found = _labels(computations)
    assert (found.of("c"), found.streams, found.consumers) == (NO_USE, frozenset(), frozenset())
