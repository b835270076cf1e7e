"""Change streams of databases in every way to run them: the tables behind them, and what is counted
over these in two stages, are those of the database, however reads are cut and whoever dies."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millwheel import as_retraction
from millwheel.connect.connectors.kafka import source as module
from millwheel.connect.connectors.kafka.partition_lists import Span
from millwheel.core.pipeline import table_changes as changes
from millwheel.testing import PipelineHarness
from tests.fakes.change_streams import ChangeStream, change_stream
from tests.fakes.kafka_library import FakeKafka, Log
from tests.search.mistakes import replaced
from tests.unit.connect.connectors.kafka.test_source import Topics

PIPELINE = """
pipeline: people
streams:
  changes:
    source: {kafka: {brokers: "b:1", topics: [clicks], until: latest, format: {debezium: %s}}}
    timestamp: {field: changed_ms, unit: ms}
    watermark: {max_delay: 1h, max_future: never}
computations:
  by_country:
    input: {changes: {key: country}}
    window: global
    trigger: {repeat: {after_count: %d}}
    accumulation: retracting
    aggregate: {n: count, ids: {sum: id}}
    output: by_country
  sizes:
    input: {by_country: {key: n}}
    window: global
    aggregate: {countries: count}
    output: sizes
sinks:
  changes: {stdout: {mode: changelog}}
  by_country: {stdout: {mode: changelog}}
  sizes: {stdout: {}}
"""
WAYS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "one": lambda rng: {"shards": 1, "workers": 1},
    "crashes": lambda rng: {"crash_every": rng.randrange(7, 47)},
    "spread": lambda rng: {"shards": 3, "workers": 3, "crash_at": rng.randrange(1, 60)},
}
SEEDS = 2


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that stand in the end: of the table, of what is counted over it, and of what is
    counted over that."""

    rows: Counter[str]
    counted: Counter[str]
    sizes: Counter[str]


def wanted(stream: ChangeStream) -> Found:
    """As the database says."""
    rows = list(stream.rows.values())
    n = Counter(row["country"] for row in rows)
    counted = [
        {"n": n[at], "ids": sum(row["id"] for row in rows if row["country"] == at)} for at in n
    ]
    sizes = Counter(n.values())
    return Found(
        standing(rows, ("id", "country")),
        standing(counted, ("n", "ids")),
        standing(
            [{"n": size, "countries": many} for size, many in sizes.items()], ("n", "countries")
        ),
    )


def standing(values: Iterable[Any], fields: tuple[str, ...]) -> Counter[str]:
    """What is left of rows and retractions; groups of which nothing is left say 0."""
    found: Counter[str] = Counter()
    for value in values:
        back = as_retraction(value)
        row = value if back is None else back.value
        if row.get("n", 1) and row.get("countries", 1):
            found[json.dumps([row[name] for name in fields])] += 1 if back is None else -1
    assert min(found.values(), default=0) >= 0, "what is taken back was there"
    return +found


def found(folder: Path, seed: int, way: str, patch: pytest.MonkeyPatch) -> Found:
    """What one way to run a stream gives."""
    stream, rng = change_stream(seed), random.Random(f"changes {seed} {way}")
    logs = [Log([], 0) for _ in range(random.Random(seed).choice([1, 3]))]
    for key, value in stream.messages:
        event = json.loads(value)
        # each row in one partition
        log = logs[int((event["after"] or event["before"])["id"]) % len(logs)]
        if key is not None:
            log.keys[len(log.values)] = key
        log.values.append(value)
    topics = {("clicks", number): log for number, log in enumerate(logs)}
    kafka, spans = (
        FakeKafka(topics),
        Topics({share: Span(0, len(log.values)) for share, log in topics.items()}),
    )
    patch.setattr(module, "Listing", lambda options: spans)
    for name in ("source", "consumer"):
        patch.setattr(f"millwheel.connect.connectors.kafka.{name}.library", lambda: kafka)
    folder.mkdir()
    (folder / "p.yaml").write_text(
        PIPELINE % (json.dumps(stream.form), random.Random(seed).choice([1, 3]))
    )
    with PipelineHarness(str(folder / "p.yaml"), run_sources=True, **WAYS[way](rng)) as harness:
        harness.advance_processing_time(10**9)
        return Found(
            standing(harness.read("changes"), ("id", "country")),
            standing(harness.read("by_country"), ("n", "ids")),
            standing(harness.read("sizes"), ("n", "countries")),
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2001, 2001 + SEEDS))
def test_tables_and_counts_over_them_are_those_of_the_database(
    seed: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(tmp_path / "p", seed, way, monkeypatch) == wanted(change_stream(seed))


def test_a_table_that_takes_every_event_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replaced(changes, "_is_repeated", lambda kept, change: False):
        assert any(
            found(tmp_path / str(seed), seed, "crashes", monkeypatch) != wanted(change_stream(seed))
            for seed in range(2001, 2004)
        )
