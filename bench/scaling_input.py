"""Input that grows with the workers: files of ad events with an ad's records in one file, and the
right answers.

Each file has ads, and an answer, of its own: so any number of first files is an input, and its
answers are theirs.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import polars as pl

from bench.inputs import generator, outliers
from bench.paths import cache

FILES_PER_WORKER = 2
ADS_PER_FILE = 2_500
"""As many as part A has: ten thousand in four files."""
_KEYS = ["ad_id", "window_start"]
_SUMS = {"impressions": pl.Int64, "clicks": pl.Int64, "spend": pl.Float64}


@dataclass(frozen=True, slots=True)
class GrowingInput:
    """Files of ``records`` events each, in one folder of the cache."""

    folder: Path
    records: int

    def first(self, files: int) -> Path:
        """A folder with the first so many files; links, made when it is first asked for."""
        folder = self.folder / f"first-{files}"
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            for number in range(files):
                os.link(self.lines(number), unfinished / self.lines(number).name)
            unfinished.rename(folder)
        return folder

    def lines(self, number: int) -> Path:
        """The events of a file as JSON lines."""
        return self.folder / f"events-{number:03d}.jsonl"

    def windows(self, number: int) -> Path:
        """What part A must make of a file, as Parquet: a row per ad and minute."""
        return self.folder / f"windows-{number:03d}.parquet"

    def outliers(self, number: int) -> Path:
        """What part B must find in a file: deviations by event id, as JSON."""
        return self.folder / f"outliers-{number:03d}.json"

    def wrong_windows(self, files: int, output: Path) -> int:
        """How many rows of part A over the first ``files`` files are missing, surplus, said twice
        or different."""
        right = pl.concat([pl.read_parquet(self.windows(number)) for number in range(files)])
        paths = [path for path in sorted(output.glob("*.jsonl")) if path.stat().st_size]
        if not paths:
            return right.height
        schema = {**dict.fromkeys(_KEYS, pl.Int64), **_SUMS}
        found = pl.concat([pl.read_ndjson(path, schema=schema) for path in paths])
        joined = right.join(found, on=_KEYS, how="full", suffix="_found")
        same = [pl.col(name) == pl.col(f"{name}_found") for name in ("impressions", "clicks")]
        alike = (pl.col("spend") - pl.col("spend_found")).abs() <= 1e-6
        good = joined.filter(pl.all_horizontal(*same, alike)).unique(_KEYS).height
        return max(right.height, found.height) - good

    def wrong_outliers(self, files: int, output: Path) -> int:
        """How many lines of part B over the first ``files`` files are missing, surplus, said twice
        or different."""
        right = {
            name: z for number in range(files) for name, z in _read(self.outliers(number)).items()
        }
        lines = [
            line
            for path in sorted(output.glob("*.jsonl"))
            for line in path.read_bytes().splitlines()
        ]
        rows = [msgspec.json.decode(line, type=_Told) for line in lines]
        good = {row.event_id for row in rows if _near(right.get(row.event_id), row.z)}
        return max(len(right), len(rows)) - len(good)


class _Told(msgspec.Struct):
    event_id: str
    z: float


def growing(records: int, files: int) -> GrowingInput:
    """At least so many files of so many records; those that are not there are made now, on all
    cores."""
    made = GrowingInput(cache() / "inputs" / f"growing-{records}", records)
    made.folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(files) if not made.lines(number).exists()]
    if missing:
        with ProcessPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
            list(pool.map(make, [made] * len(missing), missing))
    return made


def make(made: GrowingInput, number: int) -> None:
    """Write one file, and its answers before it: where the events are, the answers are, too."""
    generate = generator()
    drawn = generate.events(generate.Load(made.records, seed=1_000 + number), 0)
    drawn = replace(drawn, ads=drawn.ads % ADS_PER_FILE + number * ADS_PER_FILE)
    columns = {"ad_id": drawn.ads, "at": drawn.times, "click": drawn.clicks, "cost": drawn.costs}
    _windows(pl.DataFrame(columns)).write_parquet(made.windows(number))
    told = outliers(
        [f"{name:016x}" for name in drawn.ids.tolist()], drawn.ads.tolist(), drawn.costs.tolist()
    )
    made.outliers(number).write_bytes(msgspec.json.encode(told))
    unfinished = made.lines(number).with_suffix(".unfinished")
    with unfinished.open("w", encoding="ascii") as out:
        out.writelines(generate.lines(drawn))
    unfinished.rename(made.lines(number))


def _windows(events: pl.DataFrame) -> pl.DataFrame:
    """Part A by one aggregation of Polars, over the drawn columns."""
    start = ((pl.col("at") - pl.col("at") % 60_000) * 1_000).alias("window_start")
    clicks = pl.col("click").cast(pl.Int64).sum()
    impressions = pl.len().cast(pl.Int64) - clicks
    sums = (
        impressions.alias("impressions"),
        clicks.alias("clicks"),
        pl.col("cost").sum().alias("spend"),
    )
    return events.group_by("ad_id", start).agg(*sums)


def _read(path: Path) -> Mapping[str, float]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float])


def _near(right: float | None, found: float) -> bool:
    return right is not None and math.isclose(right, found, rel_tol=1e-9)
