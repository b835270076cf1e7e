"""Steps in a shard: what goes on, with which key and time, and what becomes of records that they
cannot use."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel import as_retraction
from millwheel.connect.connectors.kafka import source as module
from millwheel.connect.connectors.kafka.partition_lists import Span
from millwheel.core.pipeline.work import StepKind, StepSpec
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.fakes.change_streams import change_stream
from tests.fakes.kafka_library import FakeKafka, Log
from tests.unit.connect.connectors.kafka.test_source import Topics
from tests.unit.core.pipeline.test_table_changes import plain
from tests.unit.engine.workers.bench import ShardBench, computation, pipeline
from tests.unit.engine.workers.operators.combinations import hit, hits, written

SPLIT = StepSpec(StepKind.FLAT_MAP, "words:split")
LONG = StepSpec(StepKind.FILTER, expression="len(word) > 2")


def split(value: Any) -> Any:
    return [{"word": word} for word in value["text"].split()]


def bench(*steps: StepSpec) -> ShardBench:
    return ShardBench(split, spec=pipeline(computation(steps=steps)))  # type: ignore[arg-type]


def test_results_have_the_key_and_the_time_of_their_record() -> None:
    one = bench(SPLIT, LONG)
    one.deliver(("ann", {"text": "now and so on then"}, 5), ("bob", {"text": "me"}, 6))
    one.run()
    one.settle()
    sends = [send.batch for send in one.sends() if send.batch.stream == "out"]
    assert [(batch.keys, batch.timestamps) for batch in sends] == [(["ann"] * 3, [5] * 3)]


def test_a_record_that_a_step_cannot_use_is_a_dead_letter_and_the_others_go_on() -> None:
    one = bench(SPLIT, LONG)
    one.deliver(("a", {"text": "first"}, 1), ("a", {"txt": "?"}, 2), ("b", {"text": "last"}, 3))
    assert one.through() == [{"word": "first"}, {"word": "last"}]
    (letter,) = one.letters
    assert letter["reason"].startswith(
        "flat_map words:split, filter len(word) > 2 failed 3 times on this record"
    )
    assert letter["value"] == {"txt": "?"}


def test_a_crash_before_the_acks_sends_the_same_results_again_and_no_others() -> None:
    one = bench(SPLIT)
    rows = (("a", {"text": "x y"}, 1), ("b", {"text": "z"}, 2))
    one.deliver(*rows)
    one.run()
    one.settle()
    before = [send.batch.seqs for send in one.sends()]
    one.crash()
    one.deliver(*rows)
    one.run()
    one.settle()
    assert [send.batch.seqs for send in one.sends()] == before == [[1, 2, 3]]


BRANCH = """
computations:
  sort:
    input: hits
    branch: {big: size > 5, small: size < 3, visits: "page == 'a'"}
    match: MATCH
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("combinations")


@pytest.mark.parametrize("match", ["first", "all"])
@given(records=hits)
@settings(max_examples=25, deadline=None)
def test_a_record_takes_the_branches_that_fit(
    folder: Path, match: str, records: list[dict[str, Any]]
) -> None:
    tests = {
        "big": lambda r: r["size"] > 5,
        "small": lambda r: r["size"] < 3,
        "visits": lambda r: r["page"] == "a",
    }
    expected = defaultdict(list)
    for record in records:
        fits = [name for name, holds in tests.items() if holds(record)] or ["unmatched"]
        for name in fits if match == "all" else fits[:1]:
            expected[name].append(record)

    def text(record: dict[str, Any]) -> str:
        return str(sorted(record.items()))

    with PipelineHarness(
        written(folder / f"branch-{match}", BRANCH.replace("MATCH", match))
    ) as harness:
        harness.push("hits", records)
        for name in tests:
            assert sorted(harness.read(name), key=text) == sorted(expected[name], key=text)
        assert harness.counters.get("unmatched", 0) == len(expected["unmatched"])


def test_otherwise_takes_what_no_other_branch_takes(folder: Path) -> None:
    rest = BRANCH.replace("visits: \"page == 'a'\"", "rest: otherwise").replace("MATCH", "all")
    with PipelineHarness(written(folder / "rest", rest)) as harness:
        harness.push("hits", [hit(1, size=9), hit(2, size=4), {"at": 3}])
        assert harness.read("big") == [hit(1, size=9)]
        assert harness.read("rest") == [hit(2, size=4)]
        assert [letter["value"] for letter in harness.read("dead_letters")] == [{"at": 3}]
        assert "unmatched" not in harness.counters


DEDUPLICATE = """
computations:
  unique:
    input: {hits: {key: user}}
    deduplicate: {by: [page], within: 10us}
    output: unique_hits
"""


@given(records=hits)
@settings(max_examples=20, deadline=None)
def test_a_copy_is_dropped_until_the_horizon_has_passed(
    folder: Path, records: list[dict[str, Any]]
) -> None:
    expected, last = [], {}
    for record in records:
        who = (record["user"], record["page"])
        if who in last and record["at"] < last[who] + 10:
            continue
        last[who] = record["at"]
        expected.append(record)
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        for record in records:
            harness.push("hits", record)
        for user in ("ann", "bob"):
            got = [record for record in harness.read("unique_hits") if record["user"] == user]
            assert got == [record for record in expected if record["user"] == user]
        assert harness.counters.get("deduplicated", 0) == len(records) - len(expected)


def test_what_was_seen_is_forgotten_behind_the_watermark(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", hit(5))
        assert harness.timers("unique", "ann") == []
        before = harness.remembered()["unique"]
        harness.advance_watermark(16)
        assert len(harness.remembered()["unique"]) < len(before)
        harness.push("hits", hit(17))
        assert len(harness.read("unique_hits")) == 2


def test_a_record_without_the_field_is_a_dead_letter(folder: Path) -> None:
    with PipelineHarness(written(folder / "unique", DEDUPLICATE)) as harness:
        harness.push("hits", [{"at": 1, "user": "ann"}, hit(2)])
        [letter] = harness.read("dead_letters")
        assert "page" in letter["reason"]
        assert harness.read("unique_hits") == [hit(2)]


def test_without_fields_the_whole_value_counts(folder: Path) -> None:
    whole = DEDUPLICATE.replace("by: [page], ", "")
    with PipelineHarness(written(folder / "whole", whole)) as harness:
        harness.push(
            "hits",
            [
                hit(1),
                hit(1),
                hit(1, size=2),
                {**hit(1), "more": "x" * 100},
                {"more": "x" * 100, **hit(1)},
            ],
        )
        assert len(harness.read("unique_hits")) == 3


def test_duplicates_survive_crashes_once(folder: Path) -> None:
    records = [hit(1), hit(4), hit(2, page="b"), hit(14), hit(15, user="bob"), hit(12)]
    assert (
        assert_survives_crashes(
            written(folder / "unique", DEDUPLICATE), {"hits": records}, every=11
        )
        > 3
    )


PIPELINE = """
pipeline: people
streams:
  changes:
    source: {kafka: {brokers: "b:1", topics: [clicks], until: latest, format: {debezium: %s}}}
    timestamp: {field: changed_ms, unit: ms}
    id: changed_ms
    watermark: {max_delay: 1h, max_future: never}
computations:
  by_country:
    input: {changes: {key: country}}
    window: global
    aggregate: {n: count}
    output: by_country
sinks:
  changes: {stdout: {mode: changelog}}
  by_country: {stdout: {}}
"""


@pytest.mark.parametrize("seed", range(1001, 1007))
def test_whoever_dies_the_table_and_counts_over_it_are_those_of_the_database(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = change_stream(seed)
    logs = [Log([], 0), Log([], 0)]
    for key, value in stream.messages:
        log = logs[hash_of(key, value) % 2]
        if key is not None:
            log.keys[len(log.values)] = key
        log.values.append(value)
    kafka = FakeKafka({("clicks", number): log for number, log in enumerate(logs)})
    made = Topics({("clicks", number): Span(0, len(log.values)) for number, log in enumerate(logs)})
    monkeypatch.setattr(module, "Listing", lambda options: made)
    for name in ("source", "consumer"):
        monkeypatch.setattr(f"millwheel.connect.connectors.kafka.{name}.library", lambda: kafka)
    (tmp_path / "p.yaml").write_text(PIPELINE % json.dumps(stream.form))
    with PipelineHarness(
        str(tmp_path / "p.yaml"), run_sources=True, crash_every=7 + seed % 40
    ) as harness:
        harness.advance_processing_time(10**9)
        counted = {row["country"]: row["n"] for row in harness.read("by_country")}
        rows: Counter[str] = Counter()
        for value in harness.read("changes"):
            back = as_retraction(value)
            rows[plain(value if back is None else back.value)] += 1 if back is None else -1
    assert rows == Counter(map(plain, stream.rows.values())) + Counter()
    assert {country: n for country, n in counted.items() if n} == Counter(
        row["country"] for row in stream.rows.values()
    )


def hash_of(key: bytes | None, value: bytes) -> int:
    """A connector writes all events of a row into one partition, also where its rows have no
    key."""
    event = json.loads(value)
    return int((event["after"] or event["before"])["id"])
