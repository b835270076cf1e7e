"""``over:`` as it is read."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import AggregateSpec, OverSpec
from tests.unit.language.spec.parts.test_steps import computation

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
        ({"over": "{rows: 3}", "output": ""}, "output: is missing; nobody could see"),
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
