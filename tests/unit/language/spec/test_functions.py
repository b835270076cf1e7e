"""Functions of the user's that a pipeline names for its expressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec import load_pipeline
from millwheel.language.spec.ship import files_to_ship
from millwheel.testing import PipelineHarness
from millwheel.tools.explain.forms import forms_of

PIPELINE = """\
pipeline: p
functions: {rating: "scores:rating"}
streams:
  hits: {source: {injection: {}}, timestamp: {field: ts, unit: s}FIELDS}
computations:
  good:
    input: {hits: {key: {grade: "rating(price, country)"}}}
    window: {tumbling: 10s}
    where: rating(price, country) > 0
    aggregate: {n: count, best: {max: "rating(price, country) * 10"}}
    output: good
  made: {input: hits, map: {r: "rating(price, country)"}, output: made}
  ways: {input: made, branch: {high: r > 2, low: otherwise}}
  kept: {input: hits, filter: "rating(price) == 3", output: kept}
sinks: {good: stdout, made: stdout, high: stdout, kept: stdout, low: stdout}
"""
SCORES = """\
import sys

def rating(price, country="DE"):
    if country == "exit":
        sys.exit(1)
    return 3 if price < 100 else {"DE": 1, "FR": 2}[country]

NAME = "x"
"""
RECORDS = [
    {"ts": 1, "price": 5, "country": "DE"},
    {"ts": 2, "price": 500, "country": "DE"},
    {"ts": 3, "price": 500, "country": "FR"},
    {"ts": 4, "price": 500, "country": "??"},
    {"ts": 5, "price": 500, "country": "exit"},
]


@pytest.fixture
def scored(folder: Path) -> Path:
    (folder / "scores.py").write_text(SCORES)
    return folder


def written(folder: Path, fields: str = "") -> Path:
    (folder / "scored.yaml").write_text(PIPELINE.replace("FIELDS", fields))
    return folder / "scored.yaml"


@pytest.mark.parametrize("fields", ["", ", fields: {ts: int, price: int, country: str}"])
def test_they_are_called_in_keys_conditions_aggregates_steps_and_branches(
    scored: Path, fields: str
) -> None:
    with PipelineHarness(str(written(scored, fields))) as harness:
        harness.push("hits", RECORDS)
        harness.finish()
        assert sorted((row["grade"], row["n"], row["best"]) for row in harness.read("good")) == [
            (1, 1, 10),
            (2, 1, 20),
            (3, 1, 30),
        ]
        assert sorted(row["r"] for row in harness.read("made")) == [1, 2, 3]
        assert [row["r"] for row in harness.read("high")] == [3]
        assert [row["ts"] for row in harness.read("kept")] == [1]
        letters = harness.read("dead_letters")
    told = {(each["computation"], each["reason"]) for each in letters}
    assert ("good", "rating() failed: KeyError: '??'") in told
    assert ("good", "rating() failed: SystemExit: 1") in told
    assert {each["value"]["country"] for each in letters} == {"??", "exit"}


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("scores:rating", "scores:ratings", "functions.rating: module 'scores'"),
        ("scores:rating", "scores:NAME", "functions.rating: rating is a str, not a function"),
        ("scores:rating", "scores", "functions.rating: 'scores' names no Python object"),
        ('{rating: "', '{lower: "', "functions.lower: expressions have 'lower' already"),
        ('{rating: "', '{get: "', "functions.get: expressions have 'get' already"),
        ('{rating: "', '{"a b": "', "functions.a b: 'a b' cannot be called"),
        ("rating(price) == 3", "ratng(price) == 3", "unknown function 'ratng'; did you mean 'rat"),
        ("rating(price) == 3", "rating() == 3", "rating() takes 1 to 2 arguments, not 0"),
        (
            "kept: stdout",
            "kept: {files: {path: o, partition_by: [{g: rating()}]}}",
            "option 'partition_by': rating(): column 1: rating() takes 1 to 2 arguments, not 0",
        ),
    ],
)
def test_mistakes_are_told_before_a_run(
    problems: Any, scored: Path, before: str, after: str, why: str
) -> None:
    text = PIPELINE.replace("FIELDS", "").replace(before, after, 1)
    assert why in "\n".join(problems(text))


def test_sinks_call_them_too(problems: Any, scored: Path) -> None:
    sinks = "{files: {path: o, partition_by: [{grade: 'rating(price, country)'}]}}"
    kafka = "{kafka: {brokers: 'k:9092', topic: t, key: 'str(rating(price))'}}"
    text = PIPELINE.replace("FIELDS", "")
    text = text.replace("kept: stdout", f"kept: {sinks}").replace("made: stdout", f"made: {kafka}")
    (scored / "sunk.yaml").write_text(text)
    assert len(load_pipeline(scored / "sunk.yaml").sinks) == 5


def test_a_named_query_of_a_pipeline_has_them(problems: Any, scored: Path) -> None:
    text = PIPELINE.replace("FIELDS", "") + "queries: {q: {formula: rating(good.n)}}\n"
    assert not problems(text)
    assert "unknown function 'ratin'" in "\n".join(problems(text.replace("rating(g", "ratin(g")))


def test_workers_get_their_modules(scored: Path) -> None:
    spec = load_pipeline(written(scored))
    assert spec.functions == {"rating": "scores:rating"}
    assert scored / "scores.py" in files_to_ship(spec)


def test_a_copy_that_was_checked_before_is_read_without_them(scored: Path) -> None:
    path = written(scored)
    (scored / "scores.py").write_text("raise RuntimeError('imported')\n")
    assert load_pipeline(path, check_code=False).functions == {"rating": "scores:rating"}


ASKED = """\
pipeline: asked
functions: {rating: "scores:rating"}
streams:
  hits: {source: {injection: {}}, timestamp: {field: ts, unit: s}, fields: {ts: int, price: int}}
computations:
  sums:
    input: {hits: {key: {grade: rating(price)}}}
    slices: {every: 10s, keep: 1h}
    where: rating(price) > 0
    aggregate: {total: {sum: rating(price)}}
  newest:
    input: {hits: {key: {grade: rating(price)}}}
    window: {tumbling: 10s}
    aggregate: {most: {max: rating(price) * 2}}
    queryable: latest
    output: newest
  divided:
    input: {hits: {key: {grade: rating(price)}}}
    window: {tumbling: 10s}
    aggregate: {mean: {mean: rating(price)}}
    skew: scatter(2)
    output: divided
sinks: {newest: stdout, divided: stdout}
"""


def test_they_are_called_in_slices_divided_keys_and_what_is_asked(scored: Path) -> None:
    (scored / "asked.yaml").write_text(ASKED)
    with PipelineHarness(str(scored / "asked.yaml")) as harness:
        harness.push("hits", [{"ts": at, "price": price} for at, price in enumerate((5, 7, 500))])
        harness.advance_watermark(60_000_000)
        assert harness.ask("sums", 3, "1m", 20_000_000).values == {"total": 6}
        assert harness.ask("newest", 1).values == {"most": 2}
        harness.finish()
        means = {row["grade"]: row["mean"] for row in harness.read("divided")}
    assert means == {1: 1.0, 3: 3.0}


UNKNOWN = """\
pipeline: unknown
nulls: sql
streams:
  bids: {source: {injection: {}}, timestamp: {field: ts, unit: s}FIELDS}
computations:
  made:
    input: bids
    filter: not (price > 100)
    map: {ts: ts, k: k, twice: price * 2}
    output: made
  low: {input: bids, branch: {cheap: price < 10, dear: price >= 10, odd: otherwise}}
  sums:
    input: {bids: {key: k}}
    window: {tumbling: 10s}
    where: not (price > 100)
    aggregate: {n: count, some: {count: price}, total: {sum: price + 1}, least: {min: price}}
    then: {rest: total - least}
    having: rest >= 0
    output: sums
  again:
    input: {made: {key: k}}
    window: {tumbling: 10s}
    aggregate: {n: count, some: {count: twice}, total: {sum: twice}}
    output: again
sinks: {made: stdout, cheap: stdout, dear: stdout, odd: stdout, sums: stdout, again: stdout}
"""
BIDS = [
    {"ts": at, "k": k, "price": price}
    for at, (k, price) in enumerate([("a", 5), ("a", None), ("a", 50), ("a", 500), ("b", None)])
]


@pytest.mark.parametrize("fields", ["", ", fields: {ts: int, k: str, price: int}"])
def test_what_is_unknown_is_false_and_aggregates_leave_it_out(folder: Path, fields: str) -> None:
    (folder / "unknown.yaml").write_text(UNKNOWN.replace("FIELDS", fields))
    with PipelineHarness(str(folder / "unknown.yaml")) as harness:
        for bid in BIDS:
            harness.push("bids", [bid])
        harness.finish()
        assert sorted(row["twice"] for row in harness.read("made")) == [10, 100]
        assert [row["price"] for row in harness.read("cheap")] == [5]
        assert [row["price"] for row in harness.read("odd")] == [None, None]
        [row] = harness.read("sums")
        assert (row["k"], row["n"], row["some"], row["total"], row["rest"]) == ("a", 2, 2, 57, 52)
        assert [row["total"] for row in harness.read("again")] == [110]
        assert not harness.read("dead_letters")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("nulls: sql", "nulls: SQL", "nulls: must be one of error, sql, not 'SQL'"),
        ("price < 10", "price == null", "write `is null` or `is not null`"),
    ],
)
def test_mistakes_with_nulls_are_told_before_a_run(
    problems: Any, before: str, after: str, why: str
) -> None:
    assert why in "\n".join(problems(UNKNOWN.replace("FIELDS", "").replace(before, after, 1)))


def test_without_it_a_null_is_refused(folder: Path) -> None:
    text = UNKNOWN.replace("nulls: sql\n", "nulls:\n").replace("FIELDS", "")
    (folder / "unknown.yaml").write_text(text)
    spec = load_pipeline(folder / "unknown.yaml")
    assert spec.nulls is NullLogic.ERROR
    with PipelineHarness(spec) as harness:
        harness.push("bids", BIDS)
        harness.finish()
        assert {each["value"]["price"] for each in harness.read("dead_letters")} == {None}


ARRAYS = """\
pipeline: arrays
functions:
  rating: {callable: "arrays_of:rating", vectorized: true, returns: int}
streams:
  hits:
    source: {injection: {}}
    timestamp: {field: ts, unit: s}
    fields: {ts: int, price: int, country: str}
computations:
  made:
    input: hits
    filter: rating(price) < 9
    map: {ts: ts, r: rating(price) + 1}
    output: made
  ways: {input: made, branch: {high: "rating(r) > 2", low: otherwise}}
  good:
    input: {hits: {key: {grade: rating(price)}}}
    window: {tumbling: 10s}
    aggregate: {n: count, best: {max: "rating(price) * 10"}}
    output: good
  wheres:
    input: {hits: {key: country}}
    window: {tumbling: 10s}
    where: rating(price) > 1
    aggregate: {n: count}
    output: wheres
sinks: {good: stdout, high: stdout, low: stdout, wheres: stdout}
"""
ARRAYS_OF = """\
import pyarrow as pa
import pyarrow.compute as pc

def rating(prices):
    if pc.any(pc.equal(prices, 13)).as_py():
        raise ValueError("unlucky")
    return pc.if_else(pc.less(prices, 100), 3, 1)
"""


def test_functions_of_arrays_stay_in_columns_and_only_bad_records_are_dead_letters(
    folder: Path,
) -> None:
    (folder / "arrays_of.py").write_text(ARRAYS_OF)
    (folder / "arrays.yaml").write_text(ARRAYS)
    (folder / "files.yaml").write_text(
        ARRAYS.replace("injection: {}", "files: {path: in, format: jsonl}")
    )
    spec = load_pipeline(folder / "files.yaml")
    forms = forms_of(spec, build_graph(spec), lambda name: load_object(name, spec.folder))
    for name in ("made", "ways", "good"):
        assert forms[name].startswith("taken in columns"), forms
    assert "record by record" in forms["wheres"]
    prices = [5, 500, 13, 7, 200] * 20
    with PipelineHarness(str(folder / "arrays.yaml")) as harness:
        harness.push("hits", [{"ts": 1, "price": price, "country": "DE"} for price in prices])
        harness.finish()
        assert sorted((row["grade"], row["n"], row["best"]) for row in harness.read("good")) == [
            (1, 40, 10),
            (3, 40, 30),
        ]
        assert [row["r"] for row in harness.read("high")] == [4, 2, 4, 2] * 20
        assert [row["n"] for row in harness.read("wheres")] == [40]
        letters = harness.read("dead_letters")
    assert {each["value"]["price"] for each in letters} == {13}
    assert all("rating() failed: ValueError: unlucky" in each["reason"] for each in letters)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (", returns: int", "", "functions.rating.returns: is missing; declare the type"),
        ("returns: int", "returns: text", "must be one of int, float, str, bool, not 'text'"),
        ("vectorized: true, ", "", "`returns` is for functions of arrays"),
        ('callable: "arrays_of:rating", ', "", "functions.rating.callable: is missing"),
        ("arrays_of:rating", "arrays_of:gone", "functions.rating: module 'arrays_of'"),
        ("rating(price) + 1", "rating() + 1", "rating() takes 1 argument, not 0"),
        ("{grade: rating(price)}", "{grade: rating(price) / 2}", "a key cannot be float"),
    ],
)
def test_mistakes_with_functions_of_arrays_are_told(
    problems: Any, folder: Path, before: str, after: str, why: str
) -> None:
    (folder / "arrays_of.py").write_text(ARRAYS_OF)
    assert why in "\n".join(problems(ARRAYS.replace(before, after, 1)))
