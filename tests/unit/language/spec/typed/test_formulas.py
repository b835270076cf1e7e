"""Formulas over decimals that computations keep, from the file to the answer."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.expressions.language import formula_of
from millwheel.core.pipeline.spec import KeptKinds
from millwheel.engine.queries.model import QueryError
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.replies import get_reply
from millwheel.language.spec.typed.formulas import typed_formula
from millwheel.testing import PipelineHarness

_AT = 1_000_000_000_000_000
_TEXT = """
pipeline: p
streams:
  a: {source: {injection: {}}, timestamp: at,
      fields: {at: int, sku: str, price: "decimal(12, 2)"}}
computations:
  s: {input: {a: {key: sku}}, slices: {every: 1m, keep: 1h},
      aggregate: {spend: {sum: price}, n: count, all: {collect: price}}}
  k: {input: {a: {key: price}}, slices: {every: 1m, keep: 1h}, aggregate: {n: count}}
  w: {input: {a: {key: [sku, price]}}, window: {tumbling: 1h}, aggregate: {spend: {sum: price}},
      queryable: latest, output: out}
queries:
  mean: {formula: FORMULA, window: 1h}
sinks: {out: {stdout: {}}}
"""


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    file = tmp_path / "p.yaml"
    file.write_text(_TEXT.replace("FORMULA", "s.spend / s.n"))
    with PipelineHarness(file) as harness:
        for number, price in enumerate(("10.10", "0.20", 7)):
            harness.push("a", {"at": _AT + number, "sku": "x", "price": price})
        yield harness


@pytest.mark.parametrize(
    ("indicator", "key", "values"),
    [
        ("s.spend", "x", {"spend": Decimal("17.30")}),
        ("s.all", "x", {"all": [Decimal("10.10"), Decimal("0.20"), Decimal("7.00")]}),
        ("mean", "x", {"mean": 1730 / 300}),
        ("s.spend - 0.001", "x", {"value": Decimal("17.299")}),
        ("k.n", "10.1", {"n": 1}),
        ("k.n + 1", 7, {"value": 2}),
    ],
)
def test_answers_are_exact(indicator: str, key: Any, values: Any, asked: Any) -> None:
    assert asked.ask(indicator, key, "1h", until=_AT + 60_000_000).values == values


def test_windows_are_shown_with_their_decimals(asked: Any) -> None:
    [window] = asked.ask("w", ("x", "10.10"), mode="open").values["windows"]
    assert window["spend"] == Decimal("10.10")
    asked.finish()
    assert asked.ask("w", ("x", "10.10")).values["spend"] == Decimal("10.10")


def test_clients_write_and_get_texts(asked: Any) -> None:
    catalog = Catalog.of(asked.spec)
    for name, key in (
        (b"k:10.10:1h", 1010),
        (b"k:7:1h", 700),
        (b"s:10.10:1h", "10.10"),
        (b'w:["x","10.1"]', ("x", 1010)),
    ):
        assert catalog.plan(name).questions[0].key == key
    answer = asked.ask("s", "x", "1h", until=_AT + 60_000_000)
    assert b'{"spend":"17.30","n":3,"all":["10.10","0.20","7.00"]}' in get_reply(answer, 2)
    answer = asked.ask("s.spend", "x", "1h", until=_AT + 60_000_000)
    assert get_reply(answer, 2) == b"$5\r\n17.30\r\n"


@pytest.mark.parametrize(
    ("key", "why"), [("a", "is not a number"), ("1.001", "more than 2 digits")]
)
def test_a_key_that_is_no_decimal_is_refused(key: str, why: str, asked: Any) -> None:
    with pytest.raises(QueryError, match=why) as error:
        Catalog.of(asked.spec).plan(f"k:{key}:1h".encode())
    assert error.value.code == "wrong_key"


@pytest.mark.parametrize(
    ("formula", "sentence"),
    [
        ("s.spend ** 2", "cannot be computed exactly. Write float(…)"),
        ("s.spend + s.all", "s.all is a record or a list beside a decimal"),
    ],
)
def test_what_is_not_exact_is_refused(formula: str, sentence: str, problems: Any) -> None:
    found = "\n".join(problems(_TEXT.replace("FORMULA", formula)))
    assert "queries.mean" in found
    assert sentence in found


def test_a_formula_without_decimals_is_as_it_was() -> None:
    formula = formula_of("s.n  +  1")
    kept = {"s": KeptKinds(("str",), {"n": "int"})}
    assert typed_formula("s.n  +  1", formula, kept).formula is formula
