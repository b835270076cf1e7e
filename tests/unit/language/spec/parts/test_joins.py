"""``join`` and ``enrich``: what two inputs need to find each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import (
    BoundSpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinKind,
    JoinSpec,
    RegularJoinSpec,
)
from millwheel.language.spec import check_pipeline

HEAD = """
pipeline: p
streams:
  orders: {source: {injection: {}}, timestamp: at, id: id}
  prices: {source: {injection: {}}, timestamp: at, id: id}
  window_end: {source: {injection: {}}, timestamp: at, id: id}
  items: {source: {injection: {}}, timestamp: at, id: id}
computations:
  both:
    output: out
"""
TAIL = "sinks: {out: {stdout: {}}, window_end: {stdout: {}}}\n"
TWO = "input: {orders: {key: product}, prices: {key: product}}"
THREE = "input: {orders: {key: product}, prices: {key: product}, items: {key: product}}"


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
        ((TWO, "join: full"), "a full join is called outer"),
        (
            (TWO, "join: {kind: inner, ttl: 1d}", "window: {tumbling: 1m}"),
            "leave out ttl, or leave out window",
        ),
        (
            (TWO, "join: {kind: left, within: {until: order.ends}}"),
            "did you mean 'orders'? Inputs: orders, prices",
        ),
        (
            (TWO, "join: {kind: left, within: {until: orders.a + prices.b}}"),
            "is computed of 2 inputs",
        ),
        ((TWO, "join: {kind: left, within: {until: 5}}"), "until"),
        ((TWO, "join: {kind: inner, ttl: 1d, within: {after: 1m}}"), "leave out ttl"),
        ((TWO, "join: left", "productions: weak"), "lost or counted twice; leave it out"),
        (
            (TWO, "join: {kind: inner, within: {after: 1m}}", "window: {tumbling: 1m}"),
            "leave out within, or leave out window",
        ),
        ((TWO, "join: {ttl: 1d}"), "which records come without a partner"),
        ((THREE, "join: semi", "window: {tumbling: 1m}"), "semi takes two inputs"),
        ((THREE, "join: right", "window: {tumbling: 1m}"), "write left, with the input to keep"),
        ((THREE, "join: {kind: left, within: {after: 1m}}"), "not 3: a join within an interval"),
        ((THREE, "join: right"), "write left, with the input to keep first"),
        ((THREE, "join: anti"), "anti takes two inputs; join the others in a computation before"),
        ((THREE, "join: {kind: left, ttl: 1d}"), "emitted for forgotten rows; leave out ttl"),
        (
            (
                THREE.replace("items: {key: product}", "items: {key: [a, b]}"),
                "join: left",
            ),
            "orders has a key of one field, items of 2 fields",
        ),
        ((THREE, "enrich: {with: prices}"), "takes two inputs, not 3: write input: {orders"),
        ((TWO, "join: {kind: inner, ttl: {order: 1d}}"), "did you mean 'orders'?"),
        ((TWO, "join: inner", "where: a > 1"), "without a window emits at once"),
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
        (
            (TWO, "join: inner", "window: {tumbling: 1m}", "accumulation: retracting"),
            "emits what has changed since: new pairs, and what it takes back; leave out",
        ),
        (
            (TWO, "join: inner", "window: {tumbling: 1m}", "allowed_lateness: 1m", "late: refire"),
            "refire would pair late records with each other alone",
        ),
        (
            (
                TWO,
                "join: inner",
                "window: {tumbling: 1m}",
                "allowed_lateness: 1m",
                "productions: weak",
            ),
            "lost or counted twice; leave it out",
        ),
        (
            (TWO, "join: inner", "window: {count: 3}", "allowed_lateness: 1m"),
            "count windows fire when they are full: leave out trigger and allowed_lateness",
        ),
        ((TWO, "join: inner", "allowed_lateness: 1m"), "without a window emits at once"),
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


@pytest.mark.parametrize(
    ("join", "window", "more", "takes_back"),
    [
        ("inner", "{tumbling: 1m}", "allowed_lateness: 1m", False),
        ("inner", "{session: 1m}", "allowed_lateness: 1m", True),
        ("left", "{sliding: 1m, every: 10s}", "trigger: {repeat: {after_count: 1}}", True),
        ("left", "{tumbling: 1m}", "late: drop", False),
        ("semi", "{tumbling: 1m}", "allowed_lateness: 1m", False),
        ("anti", "{tumbling: 1m}", "allowed_lateness: 1m", True),
    ],
)
def test_a_join_whose_windows_fire_again_takes_back_what_stood_alone(
    check: Any, problems: Any, join: str, window: str, more: str, takes_back: bool
) -> None:
    written = text(TWO, f"join: {join}", f"window: {window}", more)
    refused = any("'out' carries retractions" in problem for problem in problems(written))
    assert refused is takes_back
    spec = check(written.replace(TAIL, CHANGES))
    assert (retracting_streams(spec) == {"out"}) is takes_back
    [work] = [each.work_as(JoinSpec) for each in spec.computations]
    assert work.changes is ("late: drop" not in more)


CHANGES = TAIL.replace("out: {stdout: {}}", "out: {stdout: {mode: changelog}}")
_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("semi", RegularJoinSpec(JoinKind.SEMI)),
        ("{kind: left}", RegularJoinSpec(JoinKind.LEFT)),
        ("{kind: inner, ttl: 1d}", RegularJoinSpec(JoinKind.INNER, (_DAY_US, _DAY_US))),
        (
            "{kind: anti, ttl: {prices: 1d}}",
            RegularJoinSpec(JoinKind.ANTI, (None, _DAY_US)),
        ),
        (
            "{kind: outer, ttl: {orders: 2d, prices: never}}",
            RegularJoinSpec(JoinKind.OUTER, (2 * _DAY_US, None)),
        ),
    ],
)
def test_two_streams_are_joined_without_a_window(
    check: Any, written: str, spec: RegularJoinSpec
) -> None:
    read = check(text(TWO, f"join: {written}").replace(TAIL, CHANGES))
    assert read.computations[0].work == spec
    changes = spec.kind not in (JoinKind.INNER, JoinKind.SEMI)
    assert ("out" in retracting_streams(read)) == changes


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ("left", RegularJoinSpec(JoinKind.LEFT, (None, None, None))),
        (
            "{kind: inner, ttl: {prices: 1d}}",
            RegularJoinSpec(JoinKind.INNER, (None, _DAY_US, None)),
        ),
    ],
)
def test_several_streams_are_joined_without_a_window(
    check: Any, written: str, spec: RegularJoinSpec
) -> None:
    assert (
        check(text(THREE, f"join: {written}").replace(TAIL, CHANGES)).computations[0].work == spec
    )


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
def test_several_streams_are_joined_in_windows(check: Any, kind: str) -> None:
    spec = check(text(THREE, f"join: {kind}", "window: {tumbling: 1m}"))
    work = spec.computations[0].work_as(JoinSpec)
    assert (work.kind, len(spec.computations[0].inputs)) == (JoinKind(kind), 3)


ENDS, FROM = BoundSpec("orders", "orders.ends"), BoundSpec("prices", "prices.a + 5")


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        (
            "{kind: inner, within: {before: 10us, after: 3us}}",
            IntervalJoinSpec(JoinKind.INNER, 10, 3),
        ),
        (
            "{kind: left, within: {until: orders.ends}}",
            IntervalJoinSpec(JoinKind.LEFT, 0, None, (), (ENDS,)),
        ),
        (
            "{kind: anti, within: {after: 1us, until: orders.ends, from: prices.a + 5}}",
            IntervalJoinSpec(JoinKind.ANTI, 0, 1, (FROM,), (ENDS,)),
        ),
        (
            "{kind: semi, within: {until: [orders.ends, prices.ends]}}",
            IntervalJoinSpec(
                JoinKind.SEMI, None, None, (), (ENDS, BoundSpec("prices", "prices.ends"))
            ),
        ),
    ],
)
def test_two_streams_are_joined_within_an_interval(
    check: Any, written: str, spec: IntervalJoinSpec
) -> None:
    read = check(text(TWO, f"join: {written}"))
    assert read.computations[0].work == spec
    assert "out" not in retracting_streams(read)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("inner", "keeps every record of orders and prices"),
        ("{kind: left, ttl: {orders: 1d}}", "keeps every record of prices"),
        ("{kind: left, ttl: 1d}", ""),
    ],
)
def test_a_join_that_keeps_records_for_ever_is_told(
    tmp_path: Path, written: str, kept: str
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text(TWO, f"join: {written}").replace(TAIL, CHANGES))
    warnings = [each for each in check_pipeline(file)[1] if "never ends" in each]
    assert len(warnings) == bool(kept)
    assert all(kept in each and "ttl: 7d" in each for each in warnings)
