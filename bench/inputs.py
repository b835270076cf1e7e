"""The input of parts A and B: ad events in the cache, made once; the same arguments give the same
bytes.

One sequence of records is dealt to files by ad, in its order, as a log that is partitioned by key
would hold it: the records of an ad are all in one file, so that the order in which a system sees
them is defined.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.paths import HOUSE, cache
from millwheel.core.model.keys import key_hash

LEAST, DEVIATIONS = 30, 4.0
"""Part B: after so many records of an ad, a cost further away than so many standard deviations is
told."""


class Order(Enum):
    """Which ads the files hold. ``LOCAL``: of two files the first has those of the lower half of
    the key space, as its reader does; ``ACROSS``: those of the upper half. Blanks between the lines
    make both equally large, so that a source takes them in the order of their names."""

    ANY = ""
    LOCAL = "-local"
    ACROSS = "-across"


@dataclass(frozen=True, slots=True)
class Input:
    """A folder with ``jsonl/``, ``parquet/`` (the same records) and ``outliers.json``, the right
    answer of part B."""

    folder: Path
    records: int
    files: int
    order: Order = Order.ANY

    def of(self, form: str) -> Path:
        """The folder of files in one form: ``jsonl`` or ``parquet``."""
        return self.folder / form

    def ended(self, form: str) -> Path:
        """The same files, and one with a single record two hours later; made when it is first asked
        for."""
        folder = self.folder / f"{form}-ended"
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            for path in self.of(form).iterdir():
                os.link(path, unfinished / path.name)
            _write_end(unfinished, form)
            unfinished.rename(folder)
        return folder

    def outliers(self) -> dict[str, float]:
        """By event id: how many standard deviations the cost is away."""
        return msgspec.json.decode(
            (self.folder / "outliers.json").read_bytes(), type=dict[str, float]
        )


def ads(records: int, files: int, order: Order = Order.ANY) -> Input:
    """The input with so many records in so many files; made now if it is not there."""
    made = Input(cache() / "inputs" / f"ads-{records}-{files}{order.value}", records, files, order)
    if not made.folder.exists():
        unfinished = made.folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(Input(unfinished, records, files, order))
        unfinished.rename(made.folder)
    return made


def _write_end(folder: Path, form: str) -> None:
    """A record of nobody's ad, two hours after all others."""
    generate = generator()
    end = {"event_id": "end", "ad_id": -1, "client_id": 0, "uid": 0, "type": "click", "cost": 0.0}
    row = {**end, "ts": generate.START_MS + 3 * generate.HOUR_MS}
    if form == "jsonl":
        (folder / "zz-end.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    else:
        pq.write_table(
            pa.table({name: [value] for name, value in row.items()}), folder / "zz-end.parquet"
        )


def make(made: Input) -> None:
    """Write the input into its folder."""
    generate = generator()
    drawn = generate.events(generate.Load(made.records, late=0.0, duplicates=0.0), 0)
    for form in ("jsonl", "parquet"):
        made.of(form).mkdir(parents=True)
    file_of = np.array(
        [file_of_ad(ad, made.files, made.order) for ad in range(int(drawn.ads.max()) + 1)]
    )[drawn.ads]
    for number in range(made.files):
        part = drawn.at(np.flatnonzero(file_of == number))
        with (made.of("jsonl") / f"events-{number:03d}.jsonl").open("w", encoding="ascii") as out:
            out.writelines(generate.lines(part))
        table = _table(part, generate.CLIENTS)
        pq.write_table(
            table, made.of("parquet") / f"events-{number:03d}.parquet", row_group_size=65_536
        )
    if made.order is not Order.ANY:
        level(sorted(made.of("jsonl").iterdir()))
    answer = outliers(
        [f"{number:016x}" for number in drawn.ids.tolist()],
        drawn.ads.tolist(),
        drawn.costs.tolist(),
    )
    (made.folder / "outliers.json").write_bytes(msgspec.json.encode(answer))


def file_of_ad(ad: int, files: int, order: Order) -> int:
    """Which file has the records of an ad. Raises ValueError when other than two files are to be
    ordered."""
    if order is Order.ANY:
        return ad % files
    if files != 2:
        raise ValueError(
            f"{files} files cannot be dealt to the two halves of the key space; there must be two"
        )
    return (key_hash(ad) >> 63) ^ (order is Order.ACROSS)


def level(paths: Sequence[Path]) -> None:
    """Make files of JSON lines as large as the largest of them, with blanks at the ends of their
    lines."""
    largest = max(path.stat().st_size for path in paths)
    for path in paths:
        lines = path.read_bytes().splitlines()
        each, more = divmod(largest - path.stat().st_size, len(lines))
        path.write_bytes(
            b"".join(b"%b%*s\n" % (line, each + (n < more), b"") for n, line in enumerate(lines))
        )


def outliers(ids: list[str], keys: list[int], costs: list[float]) -> dict[str, float]:
    """Part B by the plainest program there is: running mean and variance (Welford) of each key, in
    order."""
    state: dict[int, tuple[int, float, float]] = {}
    found: dict[str, float] = {}
    for name, key, cost in zip(ids, keys, costs, strict=True):
        count, mean, squares = state.get(key, (0, 0.0, 0.0))
        if count >= LEAST:
            deviation = math.sqrt(squares / (count - 1))
            if deviation > 0 and abs((cost - mean) / deviation) > DEVIATIONS:
                found[name] = (cost - mean) / deviation
        count += 1
        delta = cost - mean
        mean += delta / count
        state[key] = (count, mean, squares + delta * (cost - mean))
    return found


def _table(part: Any, clients: int) -> Any:
    return pa.table(
        {
            "event_id": [f"{number:016x}" for number in part.ids.tolist()],
            "ad_id": part.ads,
            "client_id": part.ads % clients,
            "uid": part.users,
            "type": np.where(part.clicks, "click", "impression"),
            "cost": part.costs,
            "ts": part.times,
        }
    )


def generator() -> ModuleType:
    """The generator of the ads example, which is a program and not in a package."""
    spec = importlib.util.spec_from_file_location(
        "bench_ads_generate", HOUSE / "examples" / "ads" / "generate.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
