"""The decimals of enrichments, lookups and windows of records."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness

_AT = 1_000_000_000_000_000
_HEAD = """
pipeline: p
streams:
  orders: {source: {injection: {}}, timestamp: at, fields: &fields
           {at: int, sku: str, price: "decimal(12, 2)"}}
  rates: {source: {injection: {}}, timestamp: at, table: {key: KEY, delete: "rate < 0.5"},
          fields: {at: int, sku: str, price: "decimal(12, 2)", rate: "decimal(6, 4)"}}
sinks: {out: {stdout: {}}}
computations:
"""


def _found(folder: Path, computations: str, records: list[Any], **options: Any) -> list[Any]:
    file = folder / "pipeline.yaml"
    file.write_text(_HEAD.replace("KEY", options.pop("key", "sku")) + computations)
    with PipelineHarness(file, **options) as harness:
        for number, (stream, record) in enumerate(records):
            harness.push(stream, {"at": _AT + number, **record})
        harness.finish()
        assert not harness.read("dead_letters")
        return harness.read("out")


def test_a_row_of_a_table_has_its_decimals(tmp_path: Path) -> None:
    found = _found(
        tmp_path,
        """
  x: {input: {orders: {key: sku}, rates: {key: sku}}, enrich: {with: rates, as: r}, output: e}
  y: {input: e, filter: r is not null, map: {tax: price * r.rate, rate: r.rate}, output: out}
""",
        [
            ("rates", {"sku": "a", "rate": "0.5001"}),
            ("rates", {"sku": "b", "rate": "0.4999"}),
            ("orders", {"sku": "a", "price": "10.10"}),
            ("orders", {"sku": "b", "price": "10.10"}),
        ],
    )
    assert found == [{"tax": Decimal("5.051010"), "rate": Decimal("0.5001")}]


def test_a_row_is_found_by_a_decimal(tmp_path: Path) -> None:
    found = _found(
        tmp_path,
        """
  x: {input: {orders: {key: price}, rates: {key: price}}, enrich: {with: rates, as: r}, output: e}
  y: {input: e, map: {rate: r.rate, sku: sku}, output: out}
""",
        [
            ("rates", {"sku": "a", "price": 10, "rate": 2}),
            ("orders", {"sku": "b", "price": "10.00"}),
        ],
        key="price",
    )
    assert found == [{"rate": Decimal("2.0000"), "sku": "b"}]


@pytest.mark.parametrize(
    ("by", "asked"),
    [("", ("10.10", "a")), ("by: [price + 0.005, sku], ", ("10.105", "a"))],
)
def test_a_lookup_is_asked_by_the_text_of_a_decimal(
    by: str, asked: tuple[str, ...], tmp_path: Path
) -> None:
    keys: list[Any] = []

    def answer(key: Any) -> Any:
        keys.append(key)
        return {"rate": "0.1900", "n": 0.5}

    found = _found(
        tmp_path,
        f"""
  x: {{input: {{orders: {{key: sku}}}}, output: e,
      enrich: {{lookup: {{redis: {{url: "redis://h", key: "{{price}}:{{sku}}"}}}}, {by}
      fields: [rate]}}}}
  y: {{input: e, map: {{tax: "price * cast(rate, 'decimal(6, 4)')"}}, output: out}}
""",
        [("orders", {"sku": "a", "price": "10.10"})],
        lookups={"x": answer},
    )
    assert keys == [asked]
    assert found == [{"tax": Decimal("1.919000")}]


@pytest.mark.parametrize(
    ("computation", "sentence"),
    [
        (
            "{input: {orders: {key: price}, rates: {key: rate}}, enrich: {with: rates},"
            " output: out}",
            "decimals of its keys differ, or meet others",
        ),
        (
            "{input: {orders: {key: price}, rates: {key: rate}}, window: global, aggregate: {n:"
            " count}, output: out}",
            "its inputs have decimals in fields that differ",
        ),
        (
            "{input: {orders: {key: sku}}, window: global, output: out}",
            "a window without aggregates takes no decimals; write aggregate: {NAME: …}",
        ),
        (
            "{input: {orders: {key: {k: price}}}, callback: 'mod:F', output: out}",
            "it does not take decimals",
        ),
    ],
)
def test_what_would_mix_units_is_refused(computation: str, sentence: str, problems: Any) -> None:
    found = "\n".join(problems(_HEAD.replace("KEY", "rate") + f"  x: {computation}"))
    assert sentence in found
