"""Decimals from sources through computations to sinks."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel.language.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness

_HEAD = """
pipeline: p
streams:
  a: {source: {injection: {}}, timestamp: at, fields: &fields
      {at: int, who: str, n: int, price: "decimal(12, 2)", rate: "decimal(6, 4)"}}
  b: {source: {injection: {}}, timestamp: at, fields: *fields}
  c: {source: {injection: {}}, timestamp: at, fields: {at: int, price: float}}
sinks: {out: {stdout: {MODE}}}
computations:
  x: {COMPUTATION}
"""
_LEFT_OUT = ("at", "who", "n", "window_start", "window_end")
_AT = 1_000_000_000_000_000


def _text(computation: str, mode: str = "") -> str:
    return _HEAD.replace("COMPUTATION", computation).replace("MODE", mode)


def _results(folder: Path, computation: str, records: list[Any], mode: str = "") -> list[Any]:
    file = folder / "pipeline.yaml"
    file.write_text(_text(computation, mode))
    with PipelineHarness(file) as harness:
        for number, (stream, record) in enumerate(records):
            harness.push(stream, {"at": _AT + number, "who": "w", "n": 2, **record})
        harness.finish()
        return [
            {name: each for name, each in row.items() if name not in _LEFT_OUT}
            for row in harness.read("out")
        ]


def test_sums_are_exact(tmp_path: Path) -> None:
    records = [("a", {"price": "0.10", "rate": "0.0001"})] * 3 + [("a", {"price": 1, "rate": 0})]
    [found] = _results(
        tmp_path,
        "input: {a: {key: who}}, window: global, aggregate: {total: {sum: price}, least: {min:"
        " price}, tax: {sum: price * rate}, n: count, some: {sum: 'price + 0.125', where: 'price >"
        " 0.5'}}, then: {mean: total / n, more: total + 0.005}, having: total > 1.25, output: out",
        records,
    )
    assert found == {
        "total": Decimal("1.30"),
        "least": Decimal("0.10"),
        "tax": Decimal("0.000030"),
        "some": Decimal("1.125"),
        "mean": 0.325,
        "more": Decimal("1.305"),
    }
    assert str(found["total"]) == "1.30"


@pytest.mark.parametrize(
    ("computation", "expected"),
    [
        ("input: a, filter: price > 1.5, output: out", ["2.00"]),
        ("input: a, map: {price: price * 1.5}, output: out", ["1.500", "3.000"]),
        ("input: a, steps: [{map: {x: price}}, {filter: x > 1.5}, {map: {price: -x}}], output: out",
         ["-2.00"]),
        ("input: a, branch: {out: price > 1.5}", ["2.00"]),
        ("input: {a: {key: who}}, top: {by: [price desc], k: 1}, output: out", ["1.00", "1.00",
                                                                                "2.00"]),
        ("input: {a: {key: who}}, deduplicate: {within: 1h, by: [who]}, output: out", ["1.00"]),
        ("input: {a: {key: who}}, over: {rows: 2}, aggregate: {price: {sum: price}}, output: out",
         ["1.00", "3.00"]),
        ("input: {a: {key: {price: price * 2}}}, window: global, aggregate: {x: count},"
         " output: out", ["2.00", "4.00"]),
        ("input: {a: {key: price}}, window: global, aggregate: {x: count}, output: out",
         ["1.00", "2.00"]),
        ("input: {a: {key: who}}, aggregate: {price: {max: price}}, output: out", ["1.00", "2.00"]),
    ],
)  # fmt: skip
def test_computations_take_decimals(computation: str, expected: list[str], tmp_path: Path) -> None:
    records = [("a", {"price": each, "rate": "0.1"}) for each in ("1.00", 2)]
    takes_back = "top" in computation or computation.count("aggregate: {price: {max")
    found = _results(tmp_path, computation, records, "mode: changelog" if takes_back else "")
    assert sorted(str(each["price"]) for each in found) == sorted(expected)


def test_rows_and_lists_keep_their_decimals(tmp_path: Path) -> None:
    records = [("a", {"price": each, "rate": "0.1"}) for each in ("1.05", "2.15", "-3")]
    [found] = _results(
        tmp_path,
        "input: {a: {key: who}}, window: global, aggregate: {best: {max_by: price * -2}, last:"
        " last_row, top: {top_rows: ['price + 0.005 desc nulls last', at], k: 2, rank: place}, all:"
        " {collect: price}, most: {top_k: price, k: 1}}, then: {more: 'top[0].price + 1', count:"
        " len(all), there: best is not null}, output: out",
        records,
    )
    assert found["best"]["price"] == found["last"]["price"] == Decimal("-3.00")
    assert [(each["price"], each["place"]) for each in found["top"]] == [
        (Decimal("2.15"), 1),
        (Decimal("1.05"), 2),
    ]
    assert sorted(found["all"]) == [Decimal("-3.00"), Decimal("1.05"), Decimal("2.15")]
    assert (found["most"], found["more"]) == ([Decimal("2.15")], Decimal("3.15"))
    assert (found["count"], found["there"]) == (3, True)


def test_rows_of_a_list_become_records_with_decimals(tmp_path: Path) -> None:
    text = _text(
        "input: {a: {key: who}}, window: global, aggregate: {top: {top_rows: [price desc], k: 2}},"
        " output: tops"
    )
    text += "  y: {input: tops, flat_map: top, map: {price: price + 0.005}, output: out}\n"
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    with PipelineHarness(file) as harness:
        for number, price in enumerate(("1.05", "2.15", "-3")):
            record = {"at": _AT + number, "who": "w", "n": 2, "price": price, "rate": 0}
            harness.push("a", record)
        harness.finish()
        found = [each["price"] for each in harness.read("out")]
    assert found == [Decimal("2.155"), Decimal("1.055")]


def test_fields_beside_the_entries_of_a_list_are_decimals_still(tmp_path: Path) -> None:
    text = "input: a, flat_map: {m: '[n, n + 1]'}, map: {p: price + 0.005, m: m}, output: out"
    record = {"at": _AT, "who": "w", "n": 2, "price": "1.05", "rate": 0}
    file = tmp_path / "pipeline.yaml"
    file.write_text(_text(text))
    with PipelineHarness(file) as harness:
        harness.push("a", record)
        harness.finish()
        assert harness.read("out") == [{"p": Decimal("1.055"), "m": m} for m in (2, 3)]


def test_an_expression_that_becomes_too_long_is_refused(problems: Any) -> None:
    text = " + ".join(["str(price)"] * 120)
    found = "\n".join(problems(_text(f"input: a, map: {{x: {text}}}, output: out")))
    assert "computations.x.map.x" in found
    assert "the expression has" in found


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("join: {kind: inner, ttl: 1d}", [{"a": "1.00", "b": "3.00"}]),
        ("window: {tumbling: 1h}, join: inner", [{"a": "1.00", "b": "3.00"}]),
        ("join: {kind: semi, ttl: 1d}", ["1.00"]),
        ("join: {kind: inner, within: {before: 1h, after: 1h}}", [{"a": "1.00", "b": "3.00"}]),
    ],
)
def test_joins_have_the_decimals_of_their_inputs(
    join: str, expected: list[Any], tmp_path: Path
) -> None:
    records = [("a", {"price": 1}), ("b", {"price": 3})]
    computation = f"input: {{a: {{key: who}}, b: {{key: who}}}}, {join}, output: out"
    mode = "mode: changelog" if "semi" in join else ""
    found = _results(tmp_path, computation, records, mode)
    shown = [
        str(each["price"])
        if "price" in each
        else {name: str(each[name]["price"]) for name in ("a", "b")}
        for each in found
    ]
    assert shown == expected


def test_what_is_no_decimal_is_a_dead_letter(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(_text("input: a, filter: n > 0, output: out"))
    with PipelineHarness(file) as harness:
        for price in ("x", "1.001", "12345678901", True, "1.01"):
            harness.push("a", {"at": _AT, "n": 1, "price": price, "f": 0.5})
        [passed] = harness.read("out")
        reasons = [each["reason"] for each in harness.read("dead_letters")]
    assert passed["price"] == Decimal("1.01")
    assert passed["f"] == 0.5
    assert [each.split(": ", 1)[0] for each in reasons] == [
        "field 'price' is declared as decimal(12, 2)"
    ] * 4
    assert "it is str '1.001', which has more than 2 digits behind the point" in reasons[1]


@pytest.mark.parametrize(
    ("computation", "place", "sentence"),
    [
        ("input: a, map: {x: lower(price)}, output: out", "x.map.x", "lower takes no decimal"),
        ("input: a, map: 'mod:f', output: out", "x", "mod:f would get decimals as whole units"),
        ("input: a, map: price, output: out", "x.map", "a decimal alone is not a record"),
        ("input: {a: {key: who}}, callback: 'mod:F', output: out", "x",
         "it does not take decimals"),
        ("input: {a: {key: who}}, window: global, aggregate: {m: {mean: price}}, output: out",
         "x.aggregate.m", "mean takes no decimal; write then: {NAME: total / n}"),
        ("input: {a: {key: who}}, window: global, aggregate: {m: {'mod:F': n}}, output: out",
         "x.aggregate.m", "mod:F would give decimals as whole units"),
        ("input: [a, c], filter: n > 1, output: out", "x", "its inputs have decimals in fields that"
         " differ"),
        ("input: {a: {key: price}, b: {key: rate}}, join: inner, output: out",
         "x.input", "decimals of its keys differ"),
        ("input: {a: {key: who}}, window: global, aggregate: {m: {sum: price}}, then: {x: m ** 2},"
         " output: out", "x.then.x", "cannot be computed exactly"),
    ],
)  # fmt: skip
def test_what_cannot_take_decimals_is_refused(
    computation: str, place: str, sentence: str, problems: Any
) -> None:
    found = "\n".join(problems(_text(computation)))
    assert f"computations.{place}" in found
    assert sentence in found


def test_a_pipeline_without_declared_decimals_makes_some_by_casts(tmp_path: Path) -> None:
    found = _results(
        tmp_path,
        "input: c, map: {x: \"cast(price, 'decimal(5, 1)') + 0.05\"}, output: out",
        [("c", {"price": each}) for each in (1.25, 2, 1e5)],
    )
    assert [str(each["x"]) for each in found] == ["1.25", "2.05"]


def test_sinks_without_a_form_for_decimals_are_refused(problems: Any) -> None:
    text = _text("input: a, filter: n > 1, output: out")
    found = "\n".join(problems(text.replace("stdout: {}", "redis: {url: 'redis://h', key: n}")))
    assert "sinks.out" in found
    assert "redis takes no decimals, and out has some" in found


@pytest.mark.parametrize(
    ("column", "fits"),
    [("int", False), ("decimal(9, 1)", False), ("decimal(9, 2)", True), ("float", True)],
)
def test_a_column_of_files_has_all_digits_of_a_decimal(
    column: str, fits: bool, problems: Any
) -> None:
    sink = f'files: {{path: out, format: parquet, fields: {{n: int, price: "{column}"}}}}'
    text = _text("input: a, filter: n > 1, output: out").replace("stdout: {}", sink)
    found = "\n".join(problems(text))
    assert fits == (not found)
    assert fits or "sinks.out.files.fields.price" in found
    assert fits or "write decimal(18, 2)" in found


def test_a_pipeline_without_decimals_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(_text("input: c, map: {x: price  +  1}, output: out"))
    spec = load_pipeline(file)
    assert spec.scales == {"a": {"price": 2, "rate": 4}, "b": {"price": 2, "rate": 4}}
    [step] = spec.computations[0].work.steps  # type: ignore[union-attr]
    assert step.fields == {"x": "price  +  1"}
