"""The rivals of key windows: one sliding result of many skewed keys, kept in six ways. ``python -m
bench rivals``

    python -m bench rivals [--function sum] [--records 4000] [--keys 500] [--rounds 3]
                           [--only native,key]

| way | |
|---|---|
| native | a window for each slide that a record is in |
| raw | a callback that keeps each record, and produces where one enters or leaves |
| buckets | a callback with a value per slide |
| coarse | the same with buckets of ten slides |
| literal | a callback with left and right key windows, as they were published |
| key | ``emit: changes`` |

Of a sum, raw and buckets keep a running total and subtract what leaves; of a maximum (``--function
max``) they read all that is left. All run in memory, through the engine's own state, timers and
commits. After each bundle the watermark follows. The results must be equal: at each slide, the last
one of each key (``coarse``: at each tenth slide). Memory is what the computation has stored, at its
largest of ten looks. *Age* is the longest time, in event time, from a change of the result until it
is produced: the delay of the watermark comes on top. *Unsaid* are keys that have no records left
when a result still stands. Prints one JSON line per size and way, and the table of docs/windows.md.
"""

from __future__ import annotations

import argparse
import bisect
import json
import random
import statistics
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millwheel.core.model.times import duration_us
from millwheel.testing import PipelineHarness

SIZES = (("2m", "2s", 600), ("1m", "500ms", 600), ("1h", "10ms", 10_800))
"""Length, slide, and seconds that the records are spread over."""
NOTHING: Mapping[str, int | None] = {"sum": 0, "max": None}
"""The functions, and the result of each over no records."""
WAYS = ("native", "raw", "buckets", "coarse", "literal", "key")
NATIVE_LIMIT = 1_000
"""Native windows are not run with more windows per record."""
COARSE = 10
_BUNDLE, _LOOKS, _SKEW = 100, 10, 1.1
_CODE = Path(__file__).parent / "pipelines" / "window_rivals.py"

Row = tuple[int, int, int]
"""Key, time (µs), value."""
Result = tuple[int, int, int | None]
"""Key, time from which on it holds (µs), result."""
Steps = dict[int, list[tuple[int, int | None]]]
"""By key: (time from which on it holds, result), where the result changes."""


@dataclass(frozen=True)
class Figure:
    """One way at one size. None: not run. ``windows`` are those that were made; raw records or
    buckets for callbacks that keep those. ``at_most`` is p·n/k for native windows, 2n for the
    others."""

    length: str
    slide: str
    way: str
    windows: int
    at_most: int
    state_bytes: int | None
    us_per_record: float | None
    outputs: int | None
    age_ms: float | None
    unsaid: int | None
    equal: bool | None


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench rivals", description=__doc__)
    parser.add_argument("--records", type=int, default=4_000)
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--function", choices=list(NOTHING), default="sum")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WAYS), help="some of the ways, with commas")
    parser.add_argument("--lengths", default="2m,1m,1h", help="some of the sizes, with commas")
    arguments = parser.parse_args()
    found = []
    for length, slide, seconds in (
        each for each in SIZES if each[0] in arguments.lengths.split(",")
    ):
        rows = records(arguments.records, arguments.keys, seconds)
        print(f"{len({row[0] for row in rows}):,} keys have records", file=sys.stderr)
        runs: dict[str, list[Figure]] = defaultdict(list)
        for _ in range(arguments.rounds):
            for way in arguments.only.split(","):
                runs[way].append(figure(way, arguments.function, length, slide, rows))
        for several in runs.values():
            costs = [each.us_per_record for each in several if each.us_per_record is not None]
            cost = round(statistics.median(costs), 1) if costs else None
            found.append(Figure(**{**asdict(several[0]), "us_per_record": cost}))
            print(json.dumps(asdict(found[-1])), flush=True)
    print(table(found))
    return int(any(each.equal is False for each in found))


def records(count: int, keys: int, seconds: int) -> list[Row]:
    """Records in order of time, none at the time of another. The shares of keys follow Zipf's
    law."""
    rng = random.Random(1)
    shares = [1 / rank**_SKEW for rank in range(1, keys + 1)]
    times = sorted(rng.sample(range(1, seconds * 1_000_000), count))
    drawn = rng.choices(range(keys), shares, k=count)
    return [(key, at, rng.randrange(1, 2**30)) for key, at in zip(drawn, times, strict=True)]


def figure(way: str, function: str, length: str, slide: str, rows: Sequence[Row]) -> Figure:
    """One run of a way."""
    size, every = duration_us(length), duration_us(slide)
    ratio = size // every
    if way == "native" and ratio > NATIVE_LIMIT:
        made = native_windows(rows, size, every)
        return Figure(
            length, slide, way, made, ratio * len(rows), None, None, None, None, None, None
        )
    grid = every * COARSE if way == "coarse" else every
    outputs, made, state_bytes, seconds = _run(way, function, size, every, rows)
    nothing = NOTHING[function]
    steps = on_grid(outputs, grid, nothing, way == "native")
    right, standing = truth(rows, size, grid, function), _standing(outputs)
    return Figure(
        length, slide, way,
        windows=len(outputs) if way in ("native", "key") else made,
        at_most=(ratio if way == "native" else 2) * len(rows),
        state_bytes=state_bytes,
        us_per_record=seconds / len(rows) * 1e6,
        outputs=len(outputs),
        age_ms=worst_age(outputs, truth(rows, size, 1, function), right, grid) / 1000,
        unsaid=sum(result != nothing for result in standing.values()),
        equal=steps == right,
    )  # fmt: skip


def _run(
    way: str, function: str, size: int, every: int, rows: Sequence[Row]
) -> tuple[list[Result], int, int, float]:
    """The results, those of a key in the order in which they came; windows counted; the largest
    state in bytes; seconds of CPU, without looking at the state."""
    with TemporaryDirectory() as folder:
        (Path(folder) / _CODE.name).write_text(_CODE.read_text())
        path = Path(folder) / "pipeline.yaml"
        path.write_text(json.dumps(_document(way, function, size, every)))
        with PipelineHarness(path, shards=1, workers=1) as harness:
            spent, largest = 0.0, 0
            look = max(1, len(rows) // _BUNDLE // _LOOKS)
            for number, at in enumerate(range(0, len(rows), _BUNDLE), 1):
                some = rows[at : at + _BUNDLE]
                values = [{"key": key, "ts": stamp, "v": value} for key, stamp, value in some]
                began = time.process_time()
                harness.push("events", values)
                harness.advance_watermark(some[-1][1])
                spent += time.process_time() - began
                if number % look == 0:
                    stored = harness.remembered()["sums"]
                    largest = max(
                        largest, sum(len(name) + len(data) for name, data in stored.items())
                    )
            began = time.process_time()
            harness.finish()
            spent += time.process_time() - began
            counters = harness.counters_of("sums")
            outputs = [_result(row) for row in harness.read("results")]
    return outputs, counters.get("windows", 0), largest, spent


def _result(row: Mapping[str, Any]) -> Result:
    return row["key"], row.get("at", row.get("window_end")), row["result"]


def _document(way: str, function: str, size: int, every: int) -> dict[str, Any]:
    windows = {"sliding": f"{size}us", "every": f"{every}us"}
    aggregate = {"result": {function: "v"}}
    options = {"size_us": size, "function": function}
    works: dict[str, Any] = {
        "native": {"window": windows, "aggregate": aggregate},
        "key": {"window": {**windows, "emit": "changes"}, "aggregate": aggregate},
        "raw": {"callback": "window_rivals:Raw", "options": options},
        "buckets": {
            "callback": "window_rivals:Buckets",
            "options": {**options, "bucket_us": every},
        },
        "coarse": {
            "callback": "window_rivals:Buckets",
            "options": {**options, "bucket_us": every * COARSE},
        },
        "literal": {"callback": "window_rivals:Literal", "options": {**options, "every_us": every}},
    }
    return {
        "pipeline": "rivals",
        "streams": {"events": {"source": "injection", "timestamp": {"field": "ts", "unit": "us"}}},
        "computations": {
            "sums": {"input": {"events": {"key": "key"}}, **works[way], "output": "results"}
        },
        "sinks": {"results": "stdout"},
    }


def native_windows(rows: Sequence[Row], size: int, every: int) -> int:
    """Native windows with records, counted without making them."""
    made, last = 0, dict[int, int]()
    for key, at, _ in rows:
        first_end = at + every - at % every
        last_end = first_end + size - every
        made += (last_end - max(last.get(key, 0), first_end - every)) // every
        last[key] = last_end
    return made


def truth(rows: Sequence[Row], size: int, grid: int, function: str) -> Steps:
    """Where the result of each key changes, on a grid: from the records in the window at every
    point."""
    held: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, at, value in rows:
        held[key].append((at + grid - at % grid, value))
    found: Steps = {}
    for key, own in held.items():
        points = sorted({at for enters, _ in own for at in (enters, enters + size)})
        inside = _inside(own, points, size, function)
        found[key] = _changed([*zip(points, inside, strict=True)], NOTHING[function])
    return found


def _inside(
    own: Sequence[tuple[int, int]], points: Iterable[int], size: int, function: str
) -> Iterator[int | None]:
    """What the window shows at each of the points, which rise, as the times at which records enter
    do. One pass: a key may have thousands of records in a window."""
    total, entered, left = 0, 0, 0
    falling: deque[tuple[int, int]] = deque()  # nothing in it is exceeded by a later record
    for point in points:
        while entered < len(own) and own[entered][0] <= point:
            enters, value = own[entered]
            entered, total = entered + 1, total + value
            while falling and falling[-1][1] <= value:
                falling.pop()
            falling.append((enters, value))
        while left < entered and own[left][0] + size <= point:
            left, total = left + 1, total - own[left][1]
        while falling and falling[0][0] + size <= point:
            falling.popleft()
        yield total if function == "sum" else falling[0][1] if falling else None


def on_grid(outputs: Iterable[Result], grid: int, nothing: int | None, native: bool) -> Steps:
    """The last result of each key at each point of the grid, where it changes. Native windows emit
    nothing for a window without records: there the consumer must take the last result away."""
    found: Steps = {}
    for key, at, result in outputs:
        point = at if at % grid == 0 else at + grid - at % grid
        steps = found.setdefault(key, [])
        if native and steps and point > steps[-1][0] + grid:
            steps.append((steps[-1][0] + grid, nothing))
        if steps and steps[-1][0] == point:
            steps[-1] = (point, result)
        else:
            steps.append((point, result))
    if native:
        for steps in found.values():
            steps.append((steps[-1][0] + grid, nothing))
    return {key: _changed(steps, nothing) for key, steps in found.items()}


def _changed(
    steps: Sequence[tuple[int, int | None]], nothing: int | None
) -> list[tuple[int, int | None]]:
    found, last = [], nothing
    for at, result in steps:
        if result != last:
            found.append((at, result))
            last = result
    return found


def _standing(outputs: Iterable[Result]) -> dict[int, int | None]:
    """The last result of each key."""
    return {key: result for key, _, result in outputs}


def worst_age(outputs: Iterable[Result], exact: Steps, visible: Steps, grid: int) -> int:
    """The longest time from a change to the next result of its key (µs). ``exact`` are the changes
    by the microsecond, ``visible`` those that are left on the grid; changes that no result follows
    are left out."""
    times: dict[int, list[int]] = defaultdict(list)
    for key, at, _ in outputs:
        times[key].append(at)
    worst = 0
    for key, steps in visible.items():
        changes = [at for at, _ in exact[key]]
        for point, _ in steps:
            first = bisect.bisect_right(changes, point - grid)
            said = bisect.bisect_left(times[key], changes[first])
            if said < len(times[key]):
                worst = max(worst, times[key][said] - changes[first])
    return worst


def table(found: Iterable[Figure]) -> str:
    """The figures as Markdown."""
    lines = [
        "| length, slide | way | windows made | at most | state, bytes | µs per record | results "
        "| worst age | unsaid |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        cells = (each.state_bytes, each.us_per_record, each.outputs)
        age = "not run" if each.age_ms is None else f"{each.age_ms:,.0f} ms"
        unsaid = "not run" if each.unsaid is None else f"{each.unsaid:,}"
        lines.append(
            f"| {each.length}, {each.slide} | {each.way} | {each.windows:,} | {each.at_most:,} | "
            + " | ".join("not run" if cell is None else f"{cell:,.0f}" for cell in cells)
            + f" | {age} | {unsaid} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
