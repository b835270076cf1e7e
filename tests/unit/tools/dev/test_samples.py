from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel import FileSource, GeneratorSource, InjectionSource, Pipeline, Tumbling, agg
from millwheel.tools.dev.samples import samples_of


class Click(msgspec.Struct):
    at: int
    user: str
    price: float
    good: bool
    note: str | None = None


def pipeline(source: Any, **declared: Any) -> Pipeline:
    p = Pipeline("p")
    hits = p.read("hits", source, timestamp="time", timestamp_unit="s", **declared)
    hits.key_by("user").window(Tumbling("1m")).aggregate(
        {
            "n": agg.count(where="kind == 'view'"),
            "m": agg.count(where="kind == 'buy'"),
            "sum": agg.sum("bytes + 1"),
        },
        output="by_user",
    )
    return p


def test_the_first_records_of_files_and_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"time": 1}\nodd\n{"time": 2}\n{"time": 3}\n')
    [sample] = samples_of(pipeline(FileSource(tmp_path / "*.jsonl", "jsonl")).spec(), {}, 2)
    assert (sample.origin, sample.count, len(sample.rejects)) == ("the first of files", 2, 1)
    assert [value["time"] for values in sample.records.values() for value in values] == [1, 2]


def test_a_generator_does_not_wait_for_its_rate() -> None:
    p = Pipeline("p")
    p.read("loads", GeneratorSource(rate=7)).map({"n": "id"}, output="m")
    [sample] = samples_of(p.spec(), {}, 30)
    assert sample.count == 30


def test_records_are_made_up_from_what_the_pipeline_says_of_them() -> None:
    [sample] = samples_of(
        pipeline(InjectionSource(), id="event", fields={"price": int}).spec(), {}, 4
    )
    [values] = sample.records.values()
    assert values[1] == {
        "user": "user-1", "price": 1, "bytes": 0.25, "kind": "buy", "time": 1_767_225_601,
        "event": "event-1"
    }  # fmt: skip
    assert {value["kind"] for value in values} == {"view", "buy"}
    assert sample.origin == "made up, because it is given its records from outside"


def test_a_class_says_which_fields_it_needs() -> None:
    p = Pipeline("p")
    p.read("hits", InjectionSource(), timestamp="at", schema=Click).map(
        lambda click: click.user, output="users"
    )
    [sample] = samples_of(p.spec(), {}, 1)
    assert sample.records["made up"] == [
        {"user": "user-0", "price": 0.0, "good": True, "at": 1_767_225_600_000_000}
    ]


def test_a_source_that_cannot_be_read_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [sample] = samples_of(pipeline(FileSource(tmp_path / "none.jsonl", "jsonl")).spec(), {}, 3)
    assert sample.count == 3
    assert "made up, because no file matches" in sample.origin


def test_given_records_are_taken_in_place_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"user": "ann", "time": 1}\n\n')
    [sample] = samples_of(
        pipeline(InjectionSource()).spec(), {"hits": str(tmp_path / "mine.jsonl")}, 3
    )
    assert [*sample.records.values()] == [[{"user": "ann", "time": 1}]]


def test_given_times_are_read_as_they_are_declared(tmp_path: Path) -> None:
    (tmp_path / "given.jsonl").write_text('{"t": 1500}\n{"t": "never"}\n7\n')
    p = Pipeline("p")
    fields = {"t": {"type": "timestamp", "unit": "ms"}}
    p.read("hits", InjectionSource(), timestamp="t", fields=fields).map({"t": "t"})
    [sample] = samples_of(p.spec(), {"hits": str(tmp_path / "given.jsonl")}, 9)
    assert [*sample.records.values()] == [[{"t": 1_500_000}, 7]]
    [reject] = sample.rejects
    assert "field 't' is declared as timestamp" in reject
