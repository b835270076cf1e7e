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


@pytest.mark.parametrize("window", ["window: global, ", ""])
def test_the_key_of_a_join_is_a_decimal(window: str, tmp_path: Path) -> None:
    [found] = _found(
        tmp_path,
        f"""
  a: {{input: orders, map: {{price: price}}, output: a}}
  x: {{input: {{a: {{key: price}}, orders: {{key: price}}}}, {window}join: inner, output: out}}
""",
        [("orders", {"sku": "a", "price": "10.50"})],
    )
    assert found["price"] == found["a"]["price"] == found["orders"]["price"] == Decimal("10.50")


_TIMES = """
pipeline: p
streams:
  a: {source: {injection: {}}, timestamp: at, fields: &fields {at: timestamp, sku: str}}
  b: {source: {injection: {}}, timestamp: at, fields: *fields}
sinks: {out: {stdout: {}}}
computations:
"""


@pytest.mark.parametrize(
    "computations",
    [
        """
  x: {input: a, map: {sku: sku, at: at}, output: m}
  y: {input: m, filter: "at >= '2026-01-02' and between(at, '2026-01-02', '2026-01-03')",
      output: out}
""",
        """
  x: {input: a, steps: [{map: {t: "at + 1"}}, {filter: "'2026-01-02' <= t"}], output: out}
""",
        """
  x: {input: {a: {key: sku}, b: {key: sku}}, window: {tumbling: 7d}, join: inner, output: j}
  y: {input: j, filter: "a.at >= '2026-01-02' and window_start < '2026-01-02'", output: out}
""",
        """
  x: {input: {a: {key: sku}}, window: {tumbling: 1d}, aggregate: {m: {max: at}}, output: out,
      then: {late: "m > '2026-01-03'"}, having: "max(m, m) in ['2026-01-02T10:00:00Z']"}
""",
    ],
)
def test_texts_are_compared_with_times_behind_other_computations(
    computations: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(_TIMES + computations)
    with PipelineHarness(file) as harness:
        for stream, day in (("a", 1), ("b", 1), ("a", 2)):
            harness.push(stream, {"at": f"2026-01-0{day}T10:00:00Z", "sku": "x"})
        harness.finish()
        assert not harness.read("dead_letters")
        assert len(harness.read("out")) == 1


def test_a_text_that_is_no_time_is_refused_behind_other_computations(problems: Any) -> None:
    text = """
  x: {input: a, map: {t: at}, output: m}
  y: {input: m, filter: "t >= 'noon'", output: out}
"""
    found = "\n".join(problems(_TIMES + text))
    assert "computations.y.filter" in found
    assert "`t >= 'noon'` compares a time with the text 'noon', which is none" in found


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
