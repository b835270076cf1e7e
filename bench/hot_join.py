"""A hot key of a join of all records: rows of one key, behind which come a few that meet all of
them.

    python -m bench hot_join [300000x30 1500000x3] [--rounds 3]

``300000x30`` are 300,000 rows of one stream and then 30 of the other: nine million pairs, which a
computation behind the join counts, on one worker. Each count must be right. Prints for each shape
the medians over the rounds: pairs and records per second, the processor time of the worker, which
hardly depends on what else the machine does, and the peak of its memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contest import execute
from bench.contestants import Job, ours

_SHAPES = ("300000x30", "1500000x3")
_TIMEOUT_S = 600.0
PIPELINE = """
pipeline: hot_join
streams:
  all:
    source: {files: {path: "${input}/*.jsonl", format: "${form}"}}
    timestamp: {field: at, unit: us}
    fields: {at: int, ad: int, kind: str, what: str}
computations:
  shown: {input: {all: {key: ad}}, filter: "kind == 's'", output: shown}
  clicked: {input: {all: {key: ad}}, filter: "kind == 'c'", output: clicked}
  matched: {input: {shown: {key: ad}, clicked: {key: ad}}, join: inner, output: matched}
  counts: {input: {matched: {key: ad}}, window: global, aggregate: {n: count}, output: counts}
sinks:
  counts: {files: {path: "${output}", format: jsonl}}
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """So many rows of a key, and so many that meet all of them."""

    rows: int
    partners: int

    @classmethod
    def of(cls, text: str) -> Shape:
        """As it is written on the command line."""
        rows, _, partners = text.partition("x")
        return cls(int(rows), int(partners))

    @property
    def pairs(self) -> int:
        return self.rows * self.partners

    def write(self, folder: Path) -> None:
        """The input: partners come last."""
        folder.mkdir()
        with (folder / "all.jsonl").open("w") as file:
            for at in range(self.rows + self.partners):
                kind = "s" if at < self.rows else "c"
                file.write(f'{{"at": {at}, "ad": 1, "kind": "{kind}", "what": "w{at:09}"}}\n')


@dataclass(frozen=True, slots=True)
class HotJoin:
    """How a run went."""

    seconds: float
    cpu_s: float
    worker_mb: float


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench hot_join",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shapes", nargs="*", default=_SHAPES, help=" ".join(_SHAPES))
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    options = parser.parse_args()
    for text in options.shapes:
        shape = Shape.of(text)
        with tempfile.TemporaryDirectory() as made:
            shape.write(Path(made) / "in")
            found = [measured(Path(made), shape) for _ in range(options.rounds)]
        print(json.dumps({"shape": text, **figures(shape, found)}), flush=True)
    return 0


def figures(shape: Shape, found: Sequence[HotJoin]) -> dict[str, float]:
    """The medians over all rounds."""
    seconds = statistics.median(each.seconds for each in found)
    return {
        "pairs_per_s": round(shape.pairs / seconds),
        "records_per_s": round((shape.rows + shape.partners) / seconds),
        "worker_cpu_s": round(statistics.median(each.cpu_s for each in found), 1),
        "worker_mb": round(statistics.median(each.worker_mb for each in found)),
    }


def measured(folder: Path, shape: Shape) -> HotJoin:
    """One run, checked; ``folder`` has the input."""
    work = folder / "run"
    work.mkdir()
    (work / "hot_join.yaml").write_text(PIPELINE)
    run = ours(str(work / "hot_join"), 1)(Job(work, folder / "in", "jsonl", _TIMEOUT_S))
    outcome = execute(run)
    if outcome.seconds is None or outcome.error:
        sys.exit(f"{shape}: {outcome.error or outcome.tail}")
    rows = [
        json.loads(line)
        for path in (work / "out").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    if [each["n"] for each in rows] != [shape.pairs]:
        sys.exit(f"{shape}: {rows} in place of {shape.pairs} pairs")
    shutil.rmtree(work)
    return HotJoin(outcome.seconds, outcome.busiest_cpu_s, outcome.largest_mb)
