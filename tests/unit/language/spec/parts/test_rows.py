"""``top:``, ``deduplicate:`` and ``over:`` as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import AggregateSpec, OverSpec, TopSpec
from tests.unit.language.spec.parts.test_steps import computation


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"deduplicate": "{keep: last}"}, TopSpec(latest=True)),
        ({"deduplicate": "{keep: first}"}, TopSpec()),
        ({"top": "{by: v, k: 3}"}, TopSpec(("v",), 3)),
        (
            {"top": "{by: [v desc, 'a + b'], k: 3, rank: place}"},
            TopSpec(("v desc", "a + b"), 3, "place"),
        ),
    ],
)
def test_the_first_rows_are_taken_back_when_they_change(
    check: Any, fields: dict[str, str], expected: TopSpec
) -> None:
    spec = check(computation(**fields))
    assert spec.computations[0].work == expected
    assert retracting_streams(spec) == set(spec.computations[0].outputs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"deduplicate": "{keep: last, within: 1m}"},
            "deduplicate.within: keep: last is the last record of a key for ever; leave within out",
        ),
        (
            {"deduplicate": "{keep: first, by: [a]}"},
            "deduplicate.by: keep: first is one record of each key; leave by out",
        ),
        ({"deduplicate": "{by: [a]}"}, "write for example within: 10m, or keep: first"),
        ({"deduplicate": "{keep: newest}"}, "deduplicate.keep"),
        ({"top": "{k: 3}"}, "top.by: is missing; what the order is; write for example by:"),
        ({"top": "{by: a}"}, "top.k: is missing; how many records of each key"),
        ({"top": "{by: a, k: 0}"}, "top.k"),
        ({"top": "{by: 'a + desc', k: 1}"}, "top.by: column 3"),
        (
            {"top": "{by: a desc nulls lst, k: 1}"},
            "top.by: 'a desc nulls lst' is not an order: behind its expression stand asc or desc",
        ),
        ({"top": "{by: a nulls, k: 1}"}, "top.by: 'a nulls' is not an order"),
        ({"top": "{by: a, k: 1, rank: 'a b'}"}, "top.rank: is the name of a field, not 'a b'"),
        ({"top": "{by: a, k: 1}", "deduplicate": "{keep: last}"}, "a computation does one of"),
        (
            {"top": "{by: a, k: 1}", "productions": "weak"},
            "other rows could be taken back than those that have left; leave it out",
        ),
        ({"top": "{by: a, k: 1}", "output": ""}, "computations.c.output: is missing"),
    ],
)
def test_what_is_wrong_with_first_rows_is_said(
    problems: Any, fields: dict[str, str], expected: str
) -> None:
    assert expected in "\n".join(problems(computation(**fields)))


def test_windows_behind_first_rows_are_refused(problems: Any) -> None:
    text = computation(top="{by: a, k: 1}", output="best") + (
        "  w: {input: best, window: {tumbling: 1m}, aggregate: {n: count}, output: counts}\n"
    )
    assert "and chance decides which versions" in "\n".join(problems(text))


COUNT = (AggregateSpec("n", "count"),)


@pytest.mark.parametrize(
    ("lookback", "expected"),
    [
        ("{rows: 10}", OverSpec(by_rows=True, size=10, aggregates=COUNT)),
        (
            "{rows: 10, ttl: 1s}",
            OverSpec(by_rows=True, size=10, ttl_us=1_000_000, aggregates=COUNT),
        ),
        ("{rows: all}", OverSpec(by_rows=True, size=None, aggregates=COUNT)),
        ("{range: 10s}", OverSpec(by_rows=False, size=10_000_000, aggregates=COUNT)),
        ("{range: 0s}", OverSpec(by_rows=False, size=0, aggregates=COUNT)),
        (
            "{range: all, ttl: 1s}",
            OverSpec(by_rows=False, size=None, ttl_us=1_000_000, aggregates=COUNT),
        ),
    ],
)
def test_a_look_back_is_so_many_rows_or_a_time(
    check: Any, lookback: str, expected: OverSpec
) -> None:
    spec = check(computation(over=lookback, aggregate="{n: count}"))
    assert spec.computations[0].work == expected
    assert not retracting_streams(spec)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"over": "{}"}, "over"),
        ({"over": "{ttl: 1s}"}, "over.rows: is missing; which records before it count; write"),
        ({"over": "{rows: 0}"}, "over.rows"),
        ({"over": "{rows: ten}"}, "over.rows"),
        ({"over": "{range: ten}"}, "over.range"),
        ({"over": "{rows: 3, range: 1s}"}, "over.range: a look-back has either so many rows or"),
        ({"over": "{range: 1s, ttl: 9s}"}, "over.ttl: records leave the range by themselves"),
        ({"over": "{rows: 3}", "aggregate": ""}, "aggregate: is missing; over adds aggregates"),
        ({"over": "{rows: 3}", "aggregate": "{n: {sum: }}"}, "aggregate.n"),
        ({"over": "{rows: 3}", "output": ""}, "output: is missing; nothing could read"),
        ({"over": "{rows: 3}", "having": "n > 1"}, "having: having does not go with over: its"),
        ({"over": "{rows: 3}", "then": "{m: n}"}, "make fields of them with map"),
        ({"over": "{rows: 3}", "window": "{tumbling: 1m}"}, "its look-back is that of each record"),
        ({"over": "{rows: 3}", "late": "refire"}, "comes behind those that were there; leave"),
        ({"over": "{rows: 3}", "order_by": "timestamp"}, "its records come in order anyway"),
        ({"over": "{rows: 3}", "map": "{a: a}"}, "does one of over and map; make two"),
        ({"over": "{rows: 3}", "join": "inner"}, "does one of over and join; make two"),
        ({"over": "{rows: 3}", "callback": "'m:C'"}, "over is for computations without one"),
        ({"over": "{rows: 3}", "ttl": "1s"}, "ttl is for change logs"),
        ({"over": "{rows: 3}", "skew": "scatter(4)"}, "only an aggregation in windows or slices"),
        ({"over": "{rows: 3}", "productions": "weak"}, "under other names; leave it out"),
    ],
)
def test_what_is_wrong_with_a_look_back_is_said(
    problems: Any, fields: dict[str, str], expected: str
) -> None:
    text = computation(**{"aggregate": "{n: count}", **fields})
    assert expected in "\n".join(problems(text))
