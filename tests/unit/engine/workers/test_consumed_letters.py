"""A computation that consumes a source and the dead letters of the same source gets all of both."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from millwheel.core.formats.codec import DELIVERY_BYTES
from millwheel.testing import PipelineHarness

PIPELINE = """
    pipeline: both
    streams:
      lines: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
    computations:
      all:
        input: {lines: {key: user}, dead_letters: {key: computation}}
        callback: "tell:Tell"
        output: told
        productions: PRODUCTIONS
"""
TELL = """
    from millwheel import Computation

    class Tell(Computation):
        def process_record(self, ctx, record):
            ctx.produce("told", {"from": record.stream})
"""


@pytest.mark.parametrize("productions", ["strong", "weak"])
@pytest.mark.parametrize("crash_every", [None, 5, 23])
def test_who_consumes_a_source_and_its_dead_letters_gets_all(
    tmp_path: Path, productions: str, crash_every: int | None
) -> None:
    lines = [
        "broken" if number % 3 == 1 else json.dumps({"user": number % 4, "at": number})
        for number in range(60)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "tell.py").write_text(dedent(TELL))
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE.replace("PRODUCTIONS", productions)))
    with PipelineHarness(tmp_path / "p.yaml", run_sources=True, crash_every=crash_every) as harness:
        told = Counter(row["from"] for row in harness.read("told"))
    assert told == {"lines": 40, "dead_letters": 20}


TWO_KEYS = """
    pipeline: letters
    streams:
      lines: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
    computations:
      one: {input: {lines: {key: user}}, callback: "tell:Tell", output: told}
      two: {input: {lines: {key: place}}, callback: "tell:Tell", output: told}
    sinks:
      dead_letters: {files: {path: out, format: jsonl}}
"""


def test_a_record_has_a_letter_for_each_consumer_that_finds_no_key_however_large_they_are(
    tmp_path: Path,
) -> None:
    records = [{"at": number, "text": "x" * (DELIVERY_BYTES // 6)} for number in range(10)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "tell.py").write_text(dedent(TELL))
    (tmp_path / "p.yaml").write_text(dedent(TWO_KEYS))
    with PipelineHarness(tmp_path / "p.yaml", run_sources=True) as harness:
        about = Counter(letter["computation"] for letter in harness.read("dead_letters"))
    assert about == {"one": 10, "two": 10}


BEGIN = 1_700_000_000_000_000
STAMPS = """
    pipeline: stamps
    streams:
      lines:
        source: {files: {path: in.jsonl, format: jsonl}}
        timestamp: {field: at, unit: us}
        watermark: {max_delay: 10s}
    sinks:
      dead_letters: {files: {path: out, format: jsonl}}
    computations:
      all: {input: {dead_letters: {key: computation}}, callback: "when:When", output: told}
"""
WHEN = """
    from millwheel import Computation

    class When(Computation):
        def process_record(self, ctx, record):
            ctx.produce("told", {"position": record.value["position"], "at": record.timestamp})
"""


@pytest.mark.parametrize("crash_every", [None, 5, 11])
def test_the_timestamp_of_a_letter_is_the_watermark_at_its_position(
    tmp_path: Path, crash_every: int | None
) -> None:
    lines = [
        "broken" if number % 3 == 1 else json.dumps({"at": BEGIN + number * 1_000_000})
        for number in range(60)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "when.py").write_text(dedent(WHEN))
    (tmp_path / "p.yaml").write_text(dedent(STAMPS))
    with PipelineHarness(tmp_path / "p.yaml", run_sources=True, crash_every=crash_every) as harness:
        told = sorted(row["at"] for row in harness.read("told"))
    assert told == [
        BEGIN + (number - 1 - 10) * 1_000_000 for number in range(60) if number % 3 == 1
    ]
