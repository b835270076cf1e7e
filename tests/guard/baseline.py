"""What the micro-benchmarks cost, as ratios, and how much more is still no regression.

``python -m tests.guard.baseline`` measures and writes ``baseline.json``: run it five times on a
quiet machine, keep the greatest of each, and commit the file with the change that explains them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.guard.micro import MICROS, ratio

FILE = Path(__file__).with_name("baseline.json")
TOLERANCE = 1.6
"""Ratios of one tree differ by up to a quarter between runs, Pythons and machines; a lost fast path
costs far more."""


def allowed() -> dict[str, float]:
    """The highest ratio of each micro-benchmark that is no regression."""
    return {
        name: value * TOLERANCE
        for name, value in json.loads(FILE.read_text(encoding="utf-8")).items()
    }


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="Measure the micro-benchmarks and write their baseline."
    ).parse_args()
    found = {micro.name: round(ratio(micro), 3) for micro in MICROS}
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found))
