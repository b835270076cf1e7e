"""How late the records of a sample are: the loss and the delay of each ``max_delay``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millwheel.connect.python_objects import load_object
from millwheel.core.model.times import duration_text, duration_us
from millwheel.core.pipeline.spec import PipelineSpec, StreamSpec
from millwheel.core.pipeline.tables import declared_name
from millwheel.engine.workers.delivery.timestamps import Timestamps
from millwheel.tools.dev.samples import Sample

SHARES = (0.01, 0.001, 0.00001)
"""Of the records that may be late; the last one is that of the published runs. The suggestion keeps
to it."""
_WRITTEN = "1s 2s 5s 10s 15s 30s 1m 2m 5m 10m 15m 30m 1h 2h 6h 12h 1d 2d 7d 30d"
LADDER = tuple(map(duration_us, _WRITTEN.split()))
"""The delays that people write."""
_BAR = 40  # characters of the longest bar
Longs = npt.NDArray[np.int64]


def behind_us(times_us: Sequence[int]) -> Longs:
    """How far each record of a partition is behind the highest timestamp before it. It is late
    where that is more than ``max_delay``."""
    times = np.asarray(times_us, np.int64)
    return np.maximum.accumulate(times) - times


def late_share(behind: Longs, delay_us: int) -> float:
    """The share of the records that such a ``max_delay`` makes late."""
    return float(np.count_nonzero(behind > delay_us)) / max(len(behind), 1)


def delay_for(behind: Longs, share: float) -> int:
    """The shortest ``max_delay`` by which no more than this share of the records is late."""
    rest = len(behind) - int(share * len(behind))
    return int(np.sort(behind)[rest - 1]) if rest else 0


def rounded(delay_us: int) -> int:
    """The shortest usual delay that is not shorter than this."""
    return next((each for each in LADDER if each >= delay_us), delay_us)


@dataclass(frozen=True, slots=True)
class Lateness:
    """One stream. ``late`` has the share of late records by ``max_delay`` in µs, ``delays_us`` the
    shortest delay by share, ``partitions`` the share late now and the shortest delay for a
    thousandth of each."""

    stream: str
    records: int
    max_delay_us: int
    late_now: float
    late: Mapping[int, float]
    delays_us: Mapping[float, int]
    suggested_us: int
    partitions: Mapping[str, tuple[float, int]]


def lateness_of(spec: PipelineSpec, samples: Sequence[Sample]) -> tuple[list[Lateness], list[str]]:
    """The lateness of each stream that has records of its own; and the reasons why others are left
    out."""
    streams = {each.name: each for each in spec.streams}
    results, left_out = [], []
    for sample in samples:
        stream = streams[sample.stream]
        if sample.origin.startswith("made up"):
            left_out.append(
                f"{stream.name}: its records would be {sample.origin}; give some with --input"
            )
        elif stream.arrival:
            left_out.append(
                f"{stream.name}: no record is late, since its timestamps are times of arrival"
            )
        elif stream.timeless:
            left_out.append(
                f"{declared_name(stream.name)}: no record is late, since none has a time"
            )
        elif sample.count:
            results.append(_lateness(stream, sample, spec.folder))
    return results, left_out


def _lateness(stream: StreamSpec, sample: Sample, folder: str) -> Lateness:
    function = load_object(stream.timestamp, folder) if ":" in stream.timestamp else None
    read = Timestamps(stream, function, stream.states_unit)
    parts = {
        name: behind_us(_times(read, values)) for name, values in sample.records.items() if values
    }
    behind = np.concatenate(list(parts.values()))
    suggested = rounded(delay_for(behind, SHARES[-1]))
    ladder = [0, *(each for each in LADDER if each <= suggested)][-8:]
    delays = sorted({*ladder, stream.max_delay_us, suggested})
    return Lateness(
        stream.name,
        len(behind),
        stream.max_delay_us,
        late_share(behind, stream.max_delay_us),
        {each: late_share(behind, each) for each in delays},
        {share: delay_for(behind, share) for share in SHARES},
        suggested,
        {
            name: (late_share(each, stream.max_delay_us), delay_for(each, 0.001))
            for name, each in parts.items()
        },
    )


def _times(read: Timestamps, values: list[object]) -> list[int]:
    """The times of the records that have one: the others become dead letters."""
    times, problems = read.of(values)
    return [each for index, each in enumerate(times) if index not in problems]


def print_lateness(results: Sequence[Lateness], left_out: Sequence[str], console: Console) -> None:
    """For people: a bar for each delay, then the sources, then the suggestion."""
    for each in results:
        title = (
            f"  {each.records:,} records, max_delay {duration_text(each.max_delay_us)}:"
            f" {_words(each.late_now)} late"
        )
        console.print(Text.assemble((each.stream, "bold green"), title))
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("max_delay: results come so much later", "late", ""):
            table.add_column(name, no_wrap=True)
        for delay_us, share in each.late.items():
            mark = "  <" if delay_us == each.max_delay_us else ""
            table.add_row(duration_text(delay_us) + mark, _words(share), "█" * round(share * _BAR))
        console.print(table)
        if len(each.partitions) > 1:
            for name, (share, delay_us) in each.partitions.items():
                needs = duration_text(delay_us)
                console.print(
                    f"{name}: {_words(share)} late; {needs} for 0.1 %",
                    markup=False,
                    highlight=False,
                )
        needs = ", ".join(
            f"{share:.3%} late takes {duration_text(us)}" for share, us in each.delays_us.items()
        )
        console.print(needs, style="dim", highlight=False)
        late = _words(late_of(each))
        text = (
            f"suggested: watermark: {{max_delay: {duration_text(each.suggested_us)}}}, with {late}"
            " of these late\n"
        )
        console.print(text, markup=False, highlight=False)
    for sentence in left_out:
        console.print(f"! {sentence}", style="red", markup=False, highlight=False)


def late_of(result: Lateness) -> float:
    """The share that is late with the suggested delay."""
    return result.late[result.suggested_us]


def _words(share: float) -> str:
    return f"{share:.3%}" if share else "none"


def as_json(results: Sequence[Lateness], left_out: Sequence[str]) -> str:
    """For programs."""
    streams = [
        {
            "stream": each.stream,
            "records": each.records,
            "max_delay_us": each.max_delay_us,
            "late": each.late_now,
            "late_by_delay_us": {str(delay): share for delay, share in each.late.items()},
            "delay_us_by_share": {f"{share:g}": delay for share, delay in each.delays_us.items()},
            "suggested_us": each.suggested_us,
            "partitions": {
                name: {"late": share, "delay_us_for_0.001": delay}
                for name, (share, delay) in each.partitions.items()
            },
        }
        for each in results
    ]
    return msgspec.json.encode({"streams": streams, "left_out": list(left_out)}).decode()
