"""What becomes of the records of a read: those too far in the future are dead letters, late ones
are dropped."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.connect.sources.base import Chunk
from millwheel.core.model.times import MIN_TIME, SECOND
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.engine.workers.sources.sorting import Sorting
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.testing import PipelineHarness

FAR = 4 * 86_400 * SECOND
LINES = 110_000
PIPELINE = """
    pipeline: p
    streams:
      hits: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: at,
        watermark: {max_delay: 1d}}
    computations:
      passed: {input: {hits: {key: user}}, filter: "user >= 0", output: out}
    sinks:
      out: {files: {path: out}}
"""


@pytest.mark.parametrize("far", [[67_000], [1, 30_000, 67_000, 67_001, 109_999]])
def test_a_record_too_far_in_the_future_never_costs_its_neighbours(
    tmp_path: Path, far: list[int]
) -> None:
    """Several reads are on their way and their positions are being committed when it is met."""
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE))
    lines = [f'{{"user":{n},"at":{FAR if n in far else n}}}\n' for n in range(LINES)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    with PipelineHarness(
        tmp_path / "p.yaml", run_sources=True, now=0, shards=1, workers=1
    ) as harness:
        harness.advance_processing_time(60 * SECOND)
        came = sorted(row["user"] for row in harness.read("out"))
        letters = harness.counters["dead_letters"]
    assert came == [n for n in range(LINES) if n not in far]
    assert letters == len(far)


class NoConsumers:
    """What is read goes nowhere; ``given`` are the batches and the places of late records in
    them."""

    def __init__(self) -> None:
        self.given: list[tuple[list[int], set[int]]] = []
        self.labels: list[int] = []

    def drops_late(self, stream: str) -> bool:
        return True

    def split(self, batch: Any, values: Any, late: Any = frozenset(), hot: Any = None) -> Any:
        self.given.append((list(batch.seqs), set(late)))
        self.labels += [] if batch.labels is None else list(map(int, batch.labels))
        return [], []


def late_positions(times: list[int | None], size: int) -> list[int]:
    """Positions of the records that are late when so many are read at once; None is a record
    without a time."""
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts", max_delay_us=10)
    fanout, highest, late = NoConsumers(), MIN_TIME, []
    for start in range(0, len(times), size):
        values = [{"ts": at} if at is not None else {} for at in times[start : start + size]]
        positions = list(range(start + 1, start + len(values) + 1))
        parts = SourceParts(
            "p", "source.s", stream, Any, list, bool, fanout, Timestamps(stream, None)
        )  # type: ignore[arg-type]
        sorting = Sorting(parts, highest, set(), 0)
        sorting.sort("a", Chunk(positions, values, positions[-1]))
        highest = sorting.max_timestamp
        [(kept, indexes)] = fanout.given
        late += [kept[index] for index in sorted(indexes)]
        fanout.given.clear()
    return late


@pytest.mark.parametrize("size", [1, 3, 64, 200])
def test_the_label_of_a_record_does_not_depend_on_how_much_is_read_at_once(size: int) -> None:
    times = [3 * number + (number * 37) % 23 for number in range(200)]
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts", max_delay_us=10)
    fanout, highest = NoConsumers(), MIN_TIME
    for start in range(0, len(times), size):
        values: list[Any] = [{"ts": at} for at in times[start : start + size]]
        positions = list(range(start + 1, start + len(values) + 1))
        parts = SourceParts(
            "p", "source.s", stream, Any, list, bool, fanout, Timestamps(stream, None)
        )  # type: ignore[arg-type]
        sorting = Sorting(parts, highest, set(), 0, labelled=True)
        sorting.sort("a", Chunk(positions, values, positions[-1]))
        highest = sorting.max_timestamp
    assert fanout.labels == [max(times[: number + 1]) - 10 for number in range(200)]


@pytest.mark.parametrize("gap", [None, 100])
def test_few_records_in_a_list_and_many_in_an_array_have_the_same_late_ones(
    gap: int | None,
) -> None:
    times = [gap if number % 7 == 3 else 3 * number + (number * 37) % 23 for number in range(200)]
    late = late_positions(times, len(times))
    assert (
        late_positions(times, 64) == late_positions(times, 65) == late_positions(times, 3) == late
    )
    assert late


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_who_is_late_does_not_depend_on_how_much_is_read_at_once(size: int) -> None:
    times = [100, 95, None, 89, 120, 109, 110, 111, 50, None, 130, 119, 121, 200, 0, 190]
    assert late_positions(times, size) == late_positions(times, len(times)) == [4, 6, 9, 12, 15]
