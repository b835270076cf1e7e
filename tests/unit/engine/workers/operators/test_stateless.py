"""Steps and branches in columns give what they give in rows: results with their types and their
order, dead letters, counters."""

from __future__ import annotations

import json
import random
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.stages import Passed, StatelessPlan
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import Avoided
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.stateless import StatelessOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.column_runs import in_rows

HEAD = """
pipeline: stateless
streams:
  bids:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: ms}}
    {fields}
    watermark: {{max_delay: 3s, max_future: null}}
computations:
"""
FIELDS = "fields: {auction: int, price: int, rate: float, url: str, at: int}"
PROJECTION = """
  out:
    input: bids
    filter: "price % 3 != 0"
    map: {auction: auction, dollars: "price * 0.908", dir: "part(url, '/', 3)", c: "1", t: "'x'",
      kind: "case(price > 500, 'high', price > 100, 'middle', 'low')"}
    output: out
"""
CHAIN = """
  made:
    input: {bids: {key: auction}}
    map: {auction: auction, ratio: "price / (auction - 5)", twice: "price * 2", url: url}
    output: made
  some:
    input: made
    filter: "twice > 60 and ratio < 1000.0"
    output: some
  ways:
    input: {some: {key: url}}
    branch: {small: "auction < 3", large: "auction > 6", rest: otherwise}
  all:
    input: small
    branch: {one: "auction == 1", two: "auction < 3"}
    match: all
"""
COUNTS = """
  made:
    input: bids
    map: {auction: auction, cents: "price * 100", rate: "rate * 2"}
    output: made
  counts:
    input: {made: {key: auction}}
    window: {tumbling: 10s}
    aggregate: {n: count, cents: {sum: cents}, none: {sum: {of: rate, where: "cents < 0"}},
      top: {max: {of: rate, where: "cents > 40000"}}}
    output: counts
  big:
    input: counts
    filter: "n > 1"
    map: {auction: auction, mean: "cents // n", n: "n", top: top}
    output: big
"""

PASSED = """
  out:
    input: bids
    filter: "price % 3 != 0"
    output: out
  some:
    input: out
    branch: {small: "price < 300", rest: otherwise}
  ways:
    input: {bids: {key: auction}}
    branch: {low: "price < 30", high: "rate > 1.0"}
    match: all
"""


def bids(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "auction": rng.randrange(10),
            "price": rng.randrange(1000),
            "rate": rng.choice([0.5, 1.25, -0.0, 3e16]),
            "url": f"https://a.b/{rng.choice(['x', 'é', '漢'])}/{rng.randrange(3)}",
            "at": 1_000_000 + index * 40 + rng.randrange(-4_000, 4_000),
        }
        for index in range(count)
    ]


def run(folder: Path, computations: str, rows: bool, declared: bool = True) -> dict[str, Any]:
    """The results in order, by stream, and what was counted; with the operators that ran."""
    sinks = "sinks:\n" + "".join(f"  {name}: {{stdout: {{}}}}\n" for name in outputs(computations))
    path = folder / "pipeline.yaml"
    head = HEAD.format(folder=folder, fields=FIELDS if declared else "")
    path.write_text(head + computations + sinks)
    with in_rows(rows), PipelineHarness(str(path), run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        found: dict[str, Any] = {
            name: [(each.key, each.timestamp, repr(each.value)) for each in harness.records(name)]
            for name in outputs(computations)
        }
        if "window" in computations:  # their results are in order by key
            found = {
                name: sorted(rows, key=lambda row: repr(row[0])) for name, rows in found.items()
            }
        found["dead_letters"] = [
            {name: letter[name] for name in ("reason", "value", "key", "computation")}
            for letter in harness.read("dead_letters")
        ]
        return {**found, "counters": harness.counters}


def outputs(computations: str) -> list[str]:
    names = []
    for line in computations.splitlines():
        word, _, rest = line.strip().partition(": ")
        if word == "output":
            names.append(rest)
        elif word == "branch":
            names += [part.split(":")[0].strip(" {") for part in rest.split(", ")]
    return names


def written(folder: Path, rows: list[Any], parts: int = 2) -> None:
    for part in range(parts):
        lines = [json.dumps(row) for row in rows[part::parts]]
        (folder / f"{part}.jsonl").write_text("".join(line + "\n" for line in lines))


def about(letter: dict[str, Any]) -> str:
    value = letter["value"]
    return repr((letter["reason"], letter["key"], value["price"], value["url"]))


@pytest.mark.parametrize("computations", [PROJECTION, CHAIN, COUNTS])
@pytest.mark.parametrize("declared", [True, False])
def test_steps_in_columns_give_what_they_give_in_rows(
    tmp_path: Path, computations: str, declared: bool
) -> None:
    written(tmp_path, bids(3_000, 1))
    found, wanted = (run(tmp_path, computations, rows, declared) for rows in (False, True))
    letters, whole = found.pop("dead_letters"), wanted.pop("dead_letters")
    assert found == wanted
    # records that were read in columns have the fields that were read
    assert len(letters) == len(whole)
    for letter, other in zip(sorted(letters, key=about), sorted(whole, key=about), strict=True):
        assert letter.pop("value").items() <= other.pop("value").items()
        assert letter == other


def in_disorder(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same records with their fields in another order, and one that nobody declares."""
    return [
        {"note": str(n), **dict(sorted(row.items(), reverse=n % 2 == 0))}
        for n, row in enumerate(rows)
    ]


def test_records_that_are_passed_on_have_their_fields_in_one_order(
    tmp_path: Path, in_rows_came: list[int]
) -> None:
    written(tmp_path, in_disorder(bids(3_000, 1)))
    found = run(tmp_path, PASSED, rows=False)
    assert sum(in_rows_came) < 3_000  # the first read tells the type of what is not declared
    assert found == run(tmp_path, PASSED, rows=True)
    assert all(value.startswith("{'auction': ") for _, _, value in found["out"])
    assert {value.rpartition(", ")[2][:8] for _, _, value in found["out"]} == {"'note': "}


def test_records_with_a_list_are_passed_on_one_by_one(
    tmp_path: Path, in_rows_came: list[int]
) -> None:
    written(tmp_path, [{**row, "all": [n]} for n, row in enumerate(bids(1_000, 1))])
    found = run(tmp_path, PASSED, rows=False)
    assert sum(in_rows_came) > 1_000
    assert found == run(tmp_path, PASSED, rows=True)
    assert "'all': [" in found["out"][0][2]


CONSTANT = """
  made:
    input: bids
    map: {price: price, much: "1e300"}
    output: made
  ways:
    input: made
    branch: {all: "much > 1.0", none: otherwise}
"""


def test_conditions_of_a_constant_hold_for_all_records(
    tmp_path: Path, in_rows_came: list[int]
) -> None:
    written(tmp_path, bids(1_000, 1))
    found = run(tmp_path, CONSTANT, rows=False)
    assert not in_rows_came
    assert found == run(tmp_path, CONSTANT, rows=True)


DOUBLED = """
  out:
    input: bids
    map: {auction: auction, twice: "price * 2", at: at}
    output: out
"""
INVERSE = """
  out:
    input: bids
    map: {auction: auction, inverse: "1 / price", at: at}
    output: out
"""


@pytest.fixture
def in_rows_came(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each bundle had that went by rows."""
    right, found = CallbackOperator.run, []

    def watched(self: CallbackOperator, bundle: Bundle) -> None:
        found.append(sum(len(arrival.batch) for arrival in bundle.arrivals))
        right(self, bundle)

    monkeypatch.setattr(CallbackOperator, "run", watched)
    return found


def with_price(rows: list[dict[str, Any]], price: int) -> list[dict[str, Any]]:
    return [{**row, "price": price} if n % 50 == 7 else row for n, row in enumerate(rows)]


def test_results_that_no_column_holds_keep_their_place(
    tmp_path: Path, in_rows_came: list[int]
) -> None:
    written(tmp_path, with_price(bids(2_000, 2), 2**62), parts=1)
    found = run(tmp_path, DOUBLED, rows=False)
    assert sum(in_rows_came) == len(found["out"]) > 800  # all of the bundles do
    assert found == run(tmp_path, DOUBLED, rows=True)
    assert any(str(2**63) in value for _, _, value in found["out"])


def test_only_what_becomes_a_dead_letter_leaves_the_columns(
    tmp_path: Path, in_rows_came: list[int]
) -> None:
    written(tmp_path, with_price([{**row, "price": 5} for row in bids(2_000, 2)], 0), parts=1)
    found = run(tmp_path, INVERSE, rows=False)
    assert 10 < sum(in_rows_came) == len(found["dead_letters"]) < len(found["out"]) / 20
    wanted = run(tmp_path, INVERSE, rows=True)
    assert (found["out"], found["counters"]) == (wanted["out"], wanted["counters"])


def test_few_records_go_by_rows(
    tmp_path: Path, in_rows_came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partialmethod(ShardLimits.__init__, rows_below=100)
    monkeypatch.setattr(ShardLimits, "__init__", few)
    written(tmp_path, bids(150, 2), parts=1)
    found = run(tmp_path, DOUBLED, rows=False)
    assert sum(in_rows_came) == len(found["out"]) > 50


def test_a_bundle_is_one_call_for_the_watchdog_and_goes_by_rows_once_that_has_hung(
    tmp_path: Path, in_rows_came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, bids(1_000, 2), parts=1)
    right, doing = StatelessPlan.passed, []
    operators: list[StatelessOperator] = []
    begin = StatelessOperator.run

    def watched(self: StatelessPlan, batch: ColumnBatch) -> Passed:
        doing.append(operators[-1].doing())
        return right(self, batch)

    def run_watched(self: StatelessOperator, bundle: Bundle) -> None:
        operators.append(self)
        begin(self, bundle)
        assert not self.busy()

    monkeypatch.setattr(StatelessPlan, "passed", watched)
    monkeypatch.setattr(StatelessOperator, "run", run_watched)
    found = run(tmp_path, DOUBLED, rows=False)
    assert {each.what for each in doing if each is not None} == {"batch"}
    assert not in_rows_came

    def run_apart(self: StatelessOperator, bundle: Bundle) -> None:
        self.avoid(Avoided(apart=True))
        begin(self, bundle)

    monkeypatch.setattr(StatelessOperator, "run", run_apart)
    assert run(tmp_path, DOUBLED, rows=False) == found
    assert sum(in_rows_came) == len(found["out"])
