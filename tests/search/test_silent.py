"""Streams that never have a record, among the inputs of unions, joins and enrichments: what comes
out is what comes out beside a stream that has ended."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.times import MIN_TIME
from millwheel.core.model.watermark import Fellows
from millwheel.testing import PipelineHarness
from tests.search.mistakes import replaced
from tests.search.running import Bench
from tests.search.script import Case, Clock, Push
from tests.search.variants import VARIANTS, examine

SECOND = 1_000_000
SEEDS = 6
FORMS = {
    "union": (
        "{input: {a: {key: k}, b: {key: k}}, window: {tumbling: 10s}, aggregate: {hits: count},"
        " output: out}"
    ),
    "join": (
        "{input: {a: {key: k}, b: {key: k}}, window: {tumbling: 10s}, join: outer, output: out}"
    ),
    "enrich": (
        "{input: {a: {key: k}, b: {key: k}}, enrich: {with: b, as: found, missing: keep}, output:"
        " out}"
    ),
}


def outcome(folder: Path, seed: int, ended: bool) -> list[Any]:
    """What has come out of a pipeline that goes on, some time after the last record."""
    rng = random.Random(seed)
    form, crash_at = [*FORMS][seed % len(FORMS)], 300 if seed >= len(FORMS) else None
    idle = rng.choice(["1s", "5s"])
    there = "b" if form != "enrich" and rng.random() < 0.5 else "a"
    silent = {"a": "b", "b": "a"}[there]
    files = {there: "follow: true", silent: "follow: false" if ended else "follow: true"}
    streams = "\n".join(
        f"  {name}: {{source: {{files: {{path: {name}.jsonl, format: jsonl, {follow}}}}}, "
        f"timestamp: {{field: at, unit: us}}, watermark: {{max_delay: 2s, idle_after: {idle}}}}}"
        for name, follow in files.items()
    )
    folder.mkdir()
    at, lines = 1_000_000 * SECOND, list[str]()
    for _ in range(rng.randint(2, 30)):
        at += rng.choice([0, 1, 4, 11, 40]) * SECOND
        lines.append(json.dumps({"k": rng.choice("xyz"), "n": len(lines), "at": at}) + "\n")
    (folder / f"{there}.jsonl").write_text("".join(lines))
    (folder / f"{silent}.jsonl").write_text("")
    (folder / "p.yaml").write_text(
        f"pipeline: p\nstreams:\n{streams}\ncomputations: {{c: {FORMS[form]}}}\n"
        "sinks: {out: {files: {path: out, format: jsonl}}}\n"
    )
    with PipelineHarness(folder / "p.yaml", run_sources=True, now=at, crash_at=crash_at) as harness:
        for _ in range(4):
            harness.advance_processing_time(harness.now + 5 * SECOND)
        return sorted(json.dumps(row, sort_keys=True) for row in harness.read("out"))


def differs(folder: Path, seed: int) -> bool:
    found, wanted = (outcome(folder / f"{seed}-{ended}", seed, ended) for ended in (False, True))
    assert wanted, "something must come out beside a stream that has ended"
    return found != wanted


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_stream_that_never_has_a_record_holds_as_little_as_one_that_has_ended(
    tmp_path: Path, seed: int
) -> None:
    assert not differs(tmp_path, seed)


def test_a_silent_stream_that_holds_the_others_is_found(tmp_path: Path) -> None:
    with replaced(Fellows, "reached_us", lambda self, now_us: MIN_TIME):
        assert any(differs(tmp_path, seed) for seed in range(3))


ELSEWHERE = Case(
    1,
    """\
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: {field: at}}
  clicks: {source: {injection: {}}, timestamp: {field: at}}
computations:
  c: {input: {clicks: {key: k}, hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count},
    output: c}
sinks: {c: {stdout: {}}}
""",
    (Push("clicks", ({"at": 991_000, "k": "b"},), "other"), Clock(1230 * SECOND)),
    stated=False,
    now=1200 * SECOND,
    features=frozenset(),
)
"""``hits`` has nothing to look at, and nobody looks in the worker that has it."""


def test_a_silent_stream_of_a_worker_that_only_hears_of_others_holds_no_window() -> None:
    assert not examine(ELSEWHERE, [VARIANTS["spread"]])
    right = Fellows.update
    with replaced(Fellows, "update", lambda *args: right(*args) and False):
        [found] = examine(ELSEWHERE, [VARIANTS["spread"]])
    assert "stream c: missing" in str(found)


COUNTED = Case(
    903,
    """\
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: {field: at, unit: us}}
  clicks: {source: {injection: {}}, timestamp: {field: at, unit: us}}
computations:
  c0: {input: {clicks: {key: k}, hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count},
    output: c0}
  c1: {input: {clicks: {key: k}}, window: {count: 2}, aggregate: {n: count}, output: c1}
""",
    (
        Push("clicks", ({"at": 995 * SECOND, "k": "a"},)),
        Clock(1245 * SECOND + 3),
        *(Push("clicks", ({"at": 1010 * SECOND, "k": "a"},)) for _ in range(3)),
    ),
    stated=False,
    now=1200 * SECOND,
)
"""The clock stops between two looks of a source, and a shard without a partition has none."""


def test_silence_has_moved_the_watermark_as_far_as_the_clock_before_the_next_record() -> None:
    assert not examine(COUNTED, [VARIANTS["shards"]])
    with replaced(Bench, "_see_silence", lambda bench: None):
        [found] = examine(COUNTED, [VARIANTS["shards"]])
    assert "stream c1: missing" in str(found)
