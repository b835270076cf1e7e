from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    CopiesSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    JoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
    WindowCallbackSpec,
    WindowedSpec,
    Work,
)
from millwheel.language.spec.pipelines import load_pipeline

BY_KEY = "input: {hits: {key: user}}"
TWO = "input: {hits: {key: user}, users: {key: user}}"
KINDS = {
    "callback: 'm:C'": CallbackSpec,
    "callback: 'm:C', options: {n: 1}, window: {tumbling: 1m}, where: n > 1": WindowCallbackSpec,
    "filter: n > 1, map: {n: n}, output: out": StepsSpec,
    "deduplicate: {within: 1m}, output: out": DeduplicateSpec,
    "top: {by: [n desc, ts], k: 3, rank: place}, output: out": TopSpec,
    "over: {rows: 3}, aggregate: {n: count}, where: n > 1, output: out": OverSpec,
    "branch: {out: n > 1}, match: all": BranchesSpec,
    "window: {tumbling: 1m}, output: out": AggregationSpec,
    "window: {tumbling: 1m}, aggregate: {n: count}, trigger: {after_count: 2}, output: out": (
        AggregationSpec
    ),
    "slices: {every: 1m, keep: 1h}, aggregate: {n: count}, where: n > 1": SlicesSpec,
    "join: left, window: {tumbling: 1m}, output: out": JoinSpec,
    "join: {kind: semi, ttl: 7d}, output: out": RegularJoinSpec,
    "join: {kind: semi, within: {after: 1s}}, output: out": IntervalJoinSpec,
    "enrich: {with: users}, output: out": EnrichSpec,
    "enrich: {lookup: {redis: {url: 'redis://h', key: 'k:{user}'}}, as: info}, output: out": (
        LookupSpec
    ),
    "dictionary: {of: user, as: id}, output: out": DictionarySpec,
}


def works(folder: Path, computation: str, source: str = "injection: {}") -> list[Work]:
    two = "join" in computation or "with:" in computation
    given = "input: hits" if "dictionary" in computation else TWO if two else BY_KEY
    streams = (
        f"{{hits: {{source: {{{source}}}, timestamp: ts}}, users: {{source: {{injection: {{}}}},"
        " timestamp: ts}}"
    )
    file = folder / "p.yaml"
    file.write_text(
        f"pipeline: p\nstreams: {streams}\ncomputations: {{c: {{{given}, {computation}}}}}\n"
    )
    return [each.work for each in load_pipeline(file, check_code=False).computations]


@pytest.mark.parametrize("computation", KINDS)
def test_the_fields_of_a_computation_decide_its_kind_of_work(
    tmp_path: Path, computation: str
) -> None:
    (found,) = works(tmp_path, computation)
    assert type(found) is KINDS[computation]


def test_change_events_have_a_table_and_unique_visitors_a_dictionary(tmp_path: Path) -> None:
    kafka = "kafka: {topic: t, brokers: h, format: {debezium: {key: user}}}"
    table, counts = works(
        tmp_path, "window: {tumbling: 1m}, aggregate: {n: count}, output: out", kafka
    )
    assert (type(table), type(counts)) == (TableSpec, AggregationSpec)
    numbers, counts = works(tmp_path, "uv: {of: device, every: 1m}, output: out")
    assert (type(numbers), type(counts)) == (DictionarySpec, AggregationSpec)


def test_every_kind_of_work_can_be_written() -> None:
    assert {*KINDS.values(), TableSpec, CopiesSpec} == set(get_args(Work))
    assert {kind for kind in get_args(Work) if issubclass(kind, WindowedSpec)} == {
        WindowCallbackSpec,
        AggregationSpec,
        JoinSpec,
    }
