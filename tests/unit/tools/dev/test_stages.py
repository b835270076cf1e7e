from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from millwheel import InjectionSource, Pipeline, Tumbling, agg
from millwheel.tools.dev.report import print_trial
from millwheel.tools.dev.samples import Sample
from millwheel.tools.dev.stages import Stage, Trial, tried


def test_each_stage_has_its_rows_and_failures_are_sentences_with_a_line() -> None:
    def picky(value: Any) -> Any:
        return {"user": value["user"], "third": 3 // value["n"]}

    p = Pipeline("p")
    hits = p.read("hits", InjectionSource(), timestamp="time")
    thirds = hits.map(picky, output="thirds")
    thirds.key_by("user").window(Tumbling("1m")).aggregate({"n": agg.sum("third")}, output="sums")
    records = [{"user": "ann", "time": number, "n": number % 3} for number in range(9)]
    trial = tried(p.spec(), [Sample("hits", "made up", {"a": records}, ["no JSON", "no JSON"])], 2)
    assert [
        (stage.stream, stage.made_by, stage.count, len(stage.rows)) for stage in trial.stages
    ] == [
        ("hits", "made up", 9, 2),
        ("thirds", "thirds", 6, 2),
        ("sums", "sums", 1, 1),
    ]
    rejected, failed = trial.failures
    assert rejected == "hits: 2 x no JSON"
    assert "thirds: 3 x " in failed
    assert "ZeroDivisionError" in failed
    assert "test_stages.py:" in failed
    assert "'n': 0" in failed


def test_lookups_are_not_asked() -> None:
    p = Pipeline("p")
    hits = p.read("hits", InjectionSource(), timestamp="time").key_by("user")
    hits.look_up(
        {"redis": {"url": "redis://localhost:1", "key": "u:{user}"}}, field="info", output="known"
    )
    trial = tried(p.spec(), [Sample("hits", "x", {"a": [{"user": "ann", "time": 0}]})], 5)
    assert trial.stages[-1].rows == [{"user": "ann", "time": 0, "info": None}]
    assert "known asks another system" in trial.failures[-1]


def test_times_of_a_sample_are_not_read_twice() -> None:
    p = Pipeline("p")
    fields = {"t": {"type": "timestamp", "unit": "ms"}}
    p.read("hits", InjectionSource(), timestamp="t", fields=fields).map({"t": "t"}, output="out")
    trial = tried(p.spec(), [Sample("hits", "given", {"a": [{"t": 1_500_000}]})], 5)
    assert [stage.rows for stage in trial.stages] == [[{"t": 1_500_000}]] * 2
    assert not trial.failures


# report.py


def test_rows_are_tables_with_short_cells() -> None:
    console = Console(file=io.StringIO(), width=120)
    rows = [{"page": "/", "n": 1}, {"page": "x" * 60, "tags": ["a"]}, 7]
    print_trial(
        Trial([Stage("hits", "files", 3, rows), Stage("none", "sums", 0, [])], ["hits: 1 x odd"]),
        console,
    )
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "hits  3 records  files" in said
    assert "x" * 39 + "…" in said
    assert '["a"]' in said
    assert "none  0 records  sums" in said
    assert "! hits: 1 x odd" in said
