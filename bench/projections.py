"""What steps cost a record: ``python -m bench projections [--before FOLDER] [--rounds 3]``.

Pipelines from JSON lines to JSON lines, on one worker, with their fields declared: a ``map`` of
four fields, a ``filter`` that passes half of the records on, and a ``map`` before a tumbling count.
Each run is a process of its own; what counts is the processor time of it and of its children, so
other work on the machine changes little. A run over a hundredth of the records is taken off:
processes start and stop in it, too.
``--before`` is the folder of another version, which runs in alternation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_FILES = 4
_SHARE = 100
"""Of the records, one in so many is in the input of the run that is taken off."""
_FIELDS = "{auction: int, bidder: int, price: int, url: str, at: int}"
_HEAD = """
pipeline: projections
streams:
  bids:
    source: {{files: {{path: "{input}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: ms}}
    fields: {fields}
computations:
  made:
    input: {source}
    map: {{auction: auction, bidder: bidder, price: {price}, at: at}}
    output: made
"""
_MAP = "map: {{auction: auction, bidder: bidder, price: {price}, at: at}}"
_COUNT = """
  counted:
    input: {{made: {{key: auction}}}}
    window: {{tumbling: 10s}}
    aggregate: {{n: count, price: {{sum: price}}}}
    output: counted
"""
_SINK = """
sinks:
  {stream}: {{files: {{path: "{output}"}}}}
"""
CASES = {
    "map of 4 fields": (_HEAD + _SINK, "bids", "price", "made"),
    "map of 4 fields, one computed": (_HEAD + _SINK, "bids", '"price * 0.908"', "made"),
    "filter alone": (
        _HEAD.replace(_MAP, "filter: {price} > 5000000") + _SINK,
        "bids",
        "price",
        "made",
    ),
    "map before a tumbling count": (
        _HEAD + _COUNT + _SINK,
        "{bids: {key: auction}}",
        '"price * 100"',
        "counted",
    ),
}
"""Pipelines by name: the text, the input of the map, its price, and what a sink gets."""
HERE = Path(__file__).resolve().parent.parent


def write_bids(folder: Path, records: int) -> None:
    """Bids as those of Nexmark, about 140 bytes each."""
    rng = random.Random(3)
    folder.mkdir()
    lines: list[list[str]] = [[] for _ in range(_FILES)]
    for index in range(records):
        bid = {
            "auction": rng.randrange(1_000),
            "bidder": rng.randrange(10_000),
            "price": rng.randrange(1, 10**7),
            "url": f"https://www.nexmark.com/{rng.randrange(10**6)}/item.htm?query=1",
            "at": 1_700_000_000_000 + index,
        }
        lines[index % _FILES].append(json.dumps(bid) + "\n")
    for number, part in enumerate(lines):
        (folder / f"{number}.jsonl").write_text("".join(part))


def cpu_s(version: Path, case: str, bids: Path) -> tuple[float, int]:
    """The processor time of one run by the version in a folder, and how many rows it wrote."""
    text, source, price, stream = CASES[case]
    with tempfile.TemporaryDirectory() as scratch:
        path, output = Path(scratch, "pipeline.yaml"), Path(scratch, "out")
        path.write_text(
            text.format(
                input=bids, fields=_FIELDS, source=source, price=price, output=output, stream=stream
            )
        )
        command = ["-c", "import sys; from millwheel.tools.cli import main; sys.exit(main())"]
        command += ["run", str(path), "--root", str(Path(scratch, "root")), "--workers", "1"]
        before = _used()
        subprocess.run(
            [sys.executable, *command, "--launcher", "processes"],
            env={**os.environ, "PYTHONPATH": str(version)},
            cwd=scratch,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        used = _used() - before
        return used, sum(data.read_bytes().count(b"\n") for data in output.glob("*.jsonl"))


def _used() -> float:
    """Seconds of processor time of the children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(found: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Medians, in µs a record, by pipeline and version."""
    versions = list(dict.fromkeys(version for _, version in found))
    lines = [f"| pipeline | {' | '.join(versions)} |", "|---|" + "---|" * len(versions)]
    for case in dict.fromkeys(case for case, _ in found):
        cells = [f"{statistics.median(found[case, version]):.1f}" for version in versions]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the folder of another version")
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    versions = {"this version": HERE}
    if options.before is not None:
        versions = {"before": options.before.resolve(), **versions}
    scratch = Path(tempfile.mkdtemp())
    found: dict[tuple[str, str], list[float]] = {}
    few = options.records // _SHARE
    try:
        bids, start = scratch / "bids", scratch / "start"
        write_bids(bids, options.records)
        write_bids(start, few)
        for _ in range(options.rounds):
            for case in CASES:
                rows = set()
                for name, version in versions.items():
                    (used, count), (begun, _) = (
                        cpu_s(version, case, folder) for folder in (bids, start)
                    )
                    cost_us = (used - begun) / (options.records - few) * 1e6
                    found.setdefault((case, name), []).append(cost_us)
                    rows.add(count)
                    print(f"{case}, {name}: {cost_us:.2f} µs a record, {count} rows", flush=True)
                if len(rows) > 1:
                    sys.exit(f"{case}: the versions write {rows} rows")
    finally:
        shutil.rmtree(scratch)
    print(table(found))
