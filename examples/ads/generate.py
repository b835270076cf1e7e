"""Writes advertisement events as JSON lines: the same arguments give the same bytes.

    python examples/ads/generate.py --records 1000000 --out events.jsonl
    python examples/ads/generate.py --records 1000000 --out events/ --files 4 --late 0 --duplicates
    0

An hour of event time from 2026-01-01T00:00:00Z. Ads are drawn by Zipf's law (s = 1.1, 10,000 ads),
10 % of the events are clicks. Every record arrives up to ``--disorder`` after its time; a share
``--late`` arrives more than ten seconds behind the newest record of its own file; a share
``--duplicates`` is followed, in the same file, by an exact copy of its line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

START_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
ADS, CLIENTS, USERS = 10_000, 500, 200_000
ZIPF, CLICKS, OUTLIERS = 1.1, 0.10, 0.002
LATE_MS = (11_000, 60_000)
"""How long a late record stays away: beyond the ten seconds that the pipeline waits, whatever the
disorder."""
SLICE = 100_000
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Load:
    """What to write. ``late`` and ``duplicates`` are shares of the records, ``disorder_ms`` is the
    longest delay."""

    records: int
    files: int = 1
    seed: int = 42
    disorder_ms: int = 5_000
    late: float = 0.0
    duplicates: float = 0.0
    users: int = USERS


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of the records of one file, in the order of their lines."""

    ids: npt.NDArray[np.uint64]
    ads: Ints
    users: Ints
    clicks: npt.NDArray[np.bool_]
    costs: npt.NDArray[np.float64]
    times: Ints

    def at(self, indexes: Ints) -> Events:
        """The same columns, in another order, with repetitions."""
        return Events(
            self.ids[indexes],
            self.ads[indexes],
            self.users[indexes],
            self.clicks[indexes],
            self.costs[indexes],
            self.times[indexes],
        )


def events(load: Load, number: int) -> Events:
    """The records of file ``number`` of a load."""
    random = np.random.default_rng([load.seed, number])
    count = load.records // load.files + (number < load.records % load.files)
    weights = 1 / np.arange(1, ADS + 1) ** ZIPF
    times = np.sort(random.integers(0, HOUR_MS, count))
    costs = random.lognormal(-1, 0.5, count)
    costs[random.random(count) < OUTLIERS] *= 20
    drawn = Events(
        ids=random.integers(0, 2**64, count, dtype=np.uint64),
        ads=np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).clip(
            max=ADS - 1
        ),
        users=random.integers(0, load.users, count),
        clicks=random.random(count) < CLICKS,
        costs=np.round(costs, 4),
        times=START_MS + times,
    )
    return drawn.at(_order(load, times, random))


def _order(load: Load, times: Ints, random: np.random.Generator) -> Ints:
    """Places of the records as their lines follow one another; a duplicate appears twice."""
    count = len(times)
    arrival = times + random.uniform(0, load.disorder_ms, count)
    # Only what is followed by much later records can be late: near the end of the hour nothing is.
    late = (random.random(count) < load.late) & (times < HOUR_MS - 2 * LATE_MS[1])
    arrival[late] = times[late] + load.disorder_ms + random.uniform(*LATE_MS, int(late.sum()))
    again = np.flatnonzero(random.random(count) < load.duplicates)
    again_at = arrival[again] + random.uniform(0, 2_000, len(again))
    indexes = np.concatenate((np.arange(count), again))
    return indexes[np.argsort(np.concatenate((arrival, again_at)), kind="stable")]


def lines(drawn: Events) -> Iterator[str]:
    """The records as JSON lines, in slices of many lines."""
    for begin in range(0, len(drawn.ids), SLICE):
        part = drawn.at(np.arange(begin, min(begin + SLICE, len(drawn.ids))))
        rows = zip(
            part.ids.tolist(), part.ads.tolist(), part.users.tolist(), part.clicks.tolist(),
            part.costs.tolist(),
            part.times.tolist(), strict=True,
        )  # fmt: skip
        yield "".join(
            f'{{"event_id":"{number:016x}","ad_id":{ad},"client_id":{ad % CLIENTS},"uid":{user},'
            f'"type":"{"click" if click else "impression"}","cost":{cost},"ts":{at}}}\n'
            for number, ad, user, click, cost, at in rows
        )


def write(load: Load, out: Path) -> list[Path]:
    """Write all files of a load: ``out`` itself, or ``events-<n>.jsonl`` in the folder ``out``;
    their paths."""
    one = load.files == 1 and out.suffix != "" and not out.is_dir()
    folder = out.parent if one else out
    folder.mkdir(parents=True, exist_ok=True)
    paths = (
        [out] if one else [folder / f"events-{number:03d}.jsonl" for number in range(load.files)]
    )
    for number, path in enumerate(paths):
        with path.open("w", encoding="ascii") as file:
            file.writelines(lines(events(load, number)))
    return paths


def milliseconds(text: str) -> int:
    """``500ms``, ``5s`` or ``2m``."""
    for unit, worth in (("ms", 1), ("s", 1_000), ("m", 60_000)):
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal():
            return round(float(number) * worth)
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write for example 5s")


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        if 0 <= float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a share; write a number from 0 to 1, for example 0.01"
    )


def count(text: str) -> int:
    """A whole number from 1 up."""
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a count; write a whole number from 1 up")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write advertisement events as JSON lines.")
    parser.add_argument(
        "--records", type=count, default=1_000_000, help="records, not counting duplicates"
    )
    parser.add_argument("--out", type=Path, required=True, help="a file, or a folder")
    parser.add_argument(
        "--files", type=count, default=1, help="files to spread them over (default 1)"
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument(
        "--disorder",
        type=milliseconds,
        default=5_000,
        help="longest delay of a record (default 5s)",
    )
    parser.add_argument(
        "--late",
        type=share,
        default=0.001,
        help="share of records more than 10 s behind (default 0.001)",
    )
    parser.add_argument(
        "--duplicates",
        type=share,
        default=0.01,
        help="share of records written twice (default 0.01)",
    )
    parser.add_argument(
        "--users", type=count, default=USERS, help=f"how many users there are (default {USERS})"
    )
    given = parser.parse_args(arguments)
    if given.seed < 0:
        parser.error("argument --seed: write a whole number from 0 up")
    if given.files > 1 and given.out.is_file():
        parser.error(
            f"argument --out: {given.out} is a file, and {given.files} files need a folder"
        )
    load = Load(
        given.records,
        given.files,
        given.seed,
        given.disorder,
        given.late,
        given.duplicates,
        given.users,
    )
    paths = write(load, given.out)
    sys.stderr.write(
        f"{load.records} records in {len(paths)} file{'s' if len(paths) > 1 else ''} at"
        f" {given.out}\n"
    )


if __name__ == "__main__":
    main()
