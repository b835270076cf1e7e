"""Writes the ads log as if its hour were now: most of it lies behind, the rest is appended as its
time comes.

python examples/dashboard/live.py --out out/dashboard/events.jsonl --records 200000 --behind 50m
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ads"))

from generate import HOUR_MS, START_MS, Load, events, lines, milliseconds

_STEP_S = 0.2  # between two looks for records whose time has come


def records(count: int, first_ms: int) -> Iterator[tuple[int, str]]:
    """(time in ms, line) of each record of the hour that begins at ``first_ms``, in the order of
    the log."""
    for text in lines(events(Load(count), 0)):
        for line in text.splitlines():
            record = json.loads(line)
            record["ts"] += first_ms - START_MS
            yield record["ts"], json.dumps(record, separators=(",", ":")) + "\n"


def write(out: Path, count: int, behind_ms: int, follow: bool = True) -> None:
    """Write what lies before now; with ``follow``, the rest as its time comes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="ascii") as file:
        for at_ms, line in records(count, time.time_ns() // 1_000_000 - behind_ms):
            while at_ms > time.time_ns() // 1_000_000:
                if not follow:
                    return
                file.flush()
                time.sleep(_STEP_S)
            file.write(line)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument(
        "--behind", type=milliseconds, default=HOUR_MS * 5 // 6, help="how much of the hour is over"
    )
    given = parser.parse_args()
    write(given.out, given.records, given.behind)


if __name__ == "__main__":
    main()
