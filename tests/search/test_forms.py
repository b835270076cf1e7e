"""Columns and rows agree on every value, and the search that says so would notice if they did
not."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import ceil, floor

import pytest

from millwheel.core.instants.texts import iso_text
from tests.search.forms.mistakes import MISTAKES
from tests.search.forms.running import ROWS, WAYS, difference, failure
from tests.search.forms.values import START
from tests.search.running import run
from tests.search.script import Case, Finish, Push


@pytest.mark.parametrize("seed", [1, 4, 6, 7])
def test_a_case_of_odd_values_is_the_same_in_columns_and_in_rows(seed: int) -> None:
    assert not failure(seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [50_000, *(pytest.param(first, marks=pytest.mark.long) for first in (50_020, 50_040))]
)
def test_cases_of_odd_values_are_the_same_in_columns_and_in_rows(first: int) -> None:
    for seed in range(first, first + 20):
        assert not failure(seed), f"python -m tests.search.forms --seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_deliberate_mistake_is_caught(name: str) -> None:
    make, seeds = MISTAKES[name]
    with make():
        assert any(map(failure, seeds)), f"{name}: not in {seeds}"


_TIMES = """
pipeline: p
streams:
  one:
    source: {injection: {}}
    timestamp: at
    fields: {k: str, at: timestamp, seen: {type: timestamp, unit: ms}, n: int}
    watermark: {max_delay: 1h, idle_after: never, max_future: never}
computations:
  days:
    input: {one: {key: {day: "trunc(at, '1d')"}}}
    window: {tumbling: 1d}
    aggregate:
      n: count
      least: {min: at}
      most: {max: seen}
      distinct: {count_distinct: seen}
      waited: {max: seen - at}
      fresh: {count: {where: "seen - at < duration('2s')"}}
    output: days
  seen: {input: {one: {key: seen}}, window: global, aggregate: {n: count}, output: seen}
  ends: {input: {one: {key: k}}, window: global, aggregate: {a: {first: at}, z: {last: seen},
         newest: {top_rows: at desc, k: 2}}, output: ends}
  texts: {input: one, filter: "at < seen", map: {k: k, at: iso(at), year: year(seen)},
          output: texts}
  left: {input: {one: {key: at}}, map: {at: at, n: n}, output: left}
  right: {input: {one: {key: seen}}, map: {seen: seen, n: n}, output: right}
  both: {input: {left: {key: at}, right: {key: seen}}, join: inner, output: both}
sinks:
  days: {stdout: {}}
  seen: {stdout: {}}
  ends: {stdout: {}}
  texts: {stdout: {}}
  both: {stdout: {}}
"""


def test_what_is_made_of_fields_that_are_times_is_the_same_in_columns_and_in_rows() -> None:
    second, records = 1_000_000, []
    for index in range(240):
        at, seen = START + index // 2 * second, START // 1_000 + index % 200 * 1_000
        written = iso_text(at, 3_600 * second) if index % 3 else at
        records.append({"k": "ab"[index % 2], "at": written, "seen": seen, "n": index})
    script = (Push("one", tuple(records), "pushed"), Finish())
    case = Case(1, _TIMES, script, False, START + 10**6 * second, frozenset())
    assert not difference(case, (WAYS[0], WAYS[3]))
    spec = case.spec()
    found = run(case, ROWS, spec)
    [day] = [row.value for row in found.streams["days"]]
    assert day["day"] == START - START % (86_400 * second)
    assert (day["n"], day["least"], day["distinct"]) == (240, START, 200)
    assert (day["most"], day["waited"]) == (START + 199 * second, 100 * second)
    ends = {row.value["k"]: row.value for row in found.streams["ends"]}
    assert (ends["a"]["a"], ends["b"]["z"]) == (START, START + 39 * second)
    assert [row["at"] for row in ends["a"]["newest"]] == [
        START + each * second for each in (119, 118)
    ]
    assert found.streams["texts"][0].value == {
        "k": "b",
        "at": "2023-11-14T22:13:20Z",
        "year": 2023,
    }
    assert len(found.streams["both"]) > 200
    assert not found.letters


_DECIMALS = """
pipeline: p
streams:
  one:
    source: {injection: {}}
    timestamp: at
    fields: {k: str, at: int, price: "decimal(9, 2)", rate: "decimal(8, 5)", n: int}
    watermark: {max_delay: 1h, idle_after: never, max_future: never}
computations:
  made:
    input: one
    filter: price >= 0.01 and rate != 1
    map: {k: k, more: price + 1.5, less: n - rate, paid: price * rate, part: price / 3,
          whole: price // 0.3, rest: price % 0.07, most: "max(price, rate)", plain: float(rate),
          near: "round(price, 1)", tens: "round(rate * 50, -1)", below: floor(rate),
          above: ceil(rate), cut: "mod(rate, 0.07)", chosen: "case(n > 100, price, rate)",
          text: str(price), cast: "cast(rate, 'int')"}
    output: made
  sums:
    input: {one: {key: k}}
    window: global
    aggregate: {n: count, total: {sum: price}, paid: {sum: price * rate}, least: {min: rate},
      cheap: {count: {where: price < 12.345}}, dear: {top_rows: [price desc, n], k: 3}}
    then: {mean: total / n}
    output: sums
  kinds: {input: {one: {key: price}}, window: global, aggregate: {n: count}, output: kinds}
sinks: {made: {stdout: {}}, sums: {stdout: {}}, kinds: {stdout: {}}}
"""


def test_decimals_are_exact_in_columns_and_in_rows() -> None:
    records = []
    for index in range(1, 240):
        price = Decimal(index * index * 37 % 400_000 - 5_000).scaleb(-2)
        rate = Decimal(index * 7_919 % 300_000).scaleb(-5)
        records.append(
            {"k": "ab"[index % 2], "at": START, "price": str(price), "rate": str(rate), "n": index}
        )
    script = (Push("one", tuple(records), "pushed"), Finish())
    case = Case(1, _DECIMALS, script, False, START + 10**12, frozenset())
    assert not difference(case, (WAYS[0], WAYS[3]))
    found = run(case, ROWS, case.spec())
    assert not found.letters
    exact = [(each["k"], Decimal(str(each["price"])), Decimal(str(each["rate"])), each["n"])
             for each in records]  # fmt: skip
    assert [row.value for row in found.streams["made"]] == [
        {
            "k": k,
            "more": price + Decimal("1.5"),
            "less": n - rate,
            "paid": price * rate,
            "part": float(price * 100) / 300,
            "whole": int(price * 10 // 3),
            "rest": price % Decimal("0.07"),
            "most": max(price, rate),
            "plain": float(rate),
            "near": round(price, 1),
            "tens": round(rate * 50, -1),
            "below": floor(rate),
            "above": ceil(rate),
            "cut": rate % Decimal("0.07"),
            "chosen": price if n > 100 else rate,
            "text": str(price),
            "cast": int(rate),
        }
        for k, price, rate, n in exact
        if price >= Decimal("0.01") and rate != 1
    ]
    for row in found.streams["sums"]:
        own = [(price, rate) for k, price, rate, _ in exact if k == row.value["k"]]
        total = sum(price for price, _ in own)
        assert row.value["total"] == total
        assert row.value["paid"] == sum(price * rate for price, rate in own)
        assert row.value["least"] == min(rate for _, rate in own)
        assert row.value["cheap"] == sum(price < Decimal("12.345") for price, _ in own)
        dear = sorted((price for price, _ in own), reverse=True)[:3]
        assert [each["price"] for each in row.value["dear"]] == dear
        assert row.value["mean"] == int(total * 100) / (100 * len(own))
    prices = Counter(price for _, price, _, _ in exact)
    assert {row.value["price"]: row.value["n"] for row in found.streams["kinds"]} == prices


_COUNTS = """
pipeline: p
streams:
  one:
    source: {injection: {}}
    timestamp: at
    fields: {k: int, at: int}
    watermark: {max_delay: 0s, idle_after: never, max_future: never}
computations:
  counts: {input: {one: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count}, output: counts}
sinks: {counts: {stdout: {}}}
"""


def test_what_senders_cannot_group_after_all_is_read_before_what_comes_later() -> None:
    def at(second: int) -> dict[str, object]:
        return {"k": 1, "at": START + second * 1_000_000}

    pushes = [
        Push("one", (at(0), at(1)), "pushed"),  # few groups: they are sent from here on
        Push("one", (at(100), {"k": "x", "at": "y"}), "pushed"),  # one is refused, so as records
        Push("one", (at(50),), "other"),
    ]
    case = Case(1, _COUNTS, (*pushes, Finish()), False, START + 10**12, frozenset())
    assert not difference(case, (WAYS[2],))
    assert run(case, WAYS[2], case.spec()).counters["counts"]["late"] == 1


_LOOK_BACKS = """
pipeline: p
streams:
  one:
    source: {injection: {}}
    timestamp: at
    fields: {k: str, at: int, x: float, n: int}
    watermark: {max_delay: 10s, idle_after: never, max_future: never}
computations:
  passed: {input: one, map: {k: k, at: at, x: x, n: n}, output: passed}
  looked:
    input: {passed: {key: k}}
    over: {range: 5s}
    aggregate: {few: {sum: x, where: n < 1}, count: count}
    output: looked
sinks: {looked: {stdout: {}}}
"""


def test_what_is_due_as_it_goes_on_in_rows_looks_back_from_its_own_time() -> None:
    def of(second: int, n: int = 0) -> dict[str, object]:
        return {"k": "a", "at": START + second * 1_000_000, "x": 1.5, "n": n}

    # At 19 s the watermark passes 8 s, but not 11 s. In the look-back of 17 s is not a number:
    # that is
    # for rows.
    pushes = [(of(8), of(11)), (of(19),), (of(17, n=1),), (of(1_000),)]
    case = Case(
        1, _LOOK_BACKS, (*(Push("one", each) for each in pushes), Finish()), False, START + 10**12
    )
    assert not difference(case, (WAYS[0],))
    found = run(case, WAYS[0], case.spec())
    assert [(row.value["few"], row.value["count"]) for row in found.streams["looked"]] == [
        (1.5, 1),
        (3.0, 2),
        (0, 1),
        (3.0 - 1.5, 2),
        (1.5, 1),
    ]
