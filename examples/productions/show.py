"""The failure of weak productions beside the strong ones that prevent it.

python examples/productions/show.py

Crashes the pipeline after each unit of its work in turn, and compares the reading that the gauge
remembers with the one in the notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millwheel.testing import PipelineHarness

PIPELINE = Path(__file__).with_name("pipeline.yaml")


def outcomes(productions: str) -> Iterator[tuple[int, int, int]]:
    """Of each place where it crashes: the place, what was told, and what was heard."""
    place, units = 0, 1
    while place < units:
        place += 1
        params = {"productions": productions}
        with PipelineHarness(PIPELINE, params=params, shards=1, crash_at=place) as harness:
            harness.push("questions", {"name": "t", "at": 1})
            harness.finish()
            told, heard = harness.state("gauge", "t")["told"], harness.state("notes", "t")["heard"]
            units = harness.units
            yield place, told, heard


def main() -> None:
    """Print the places where the two disagree."""
    for productions in ("weak", "strong"):
        found = list(outcomes(productions))
        wrong = [
            f"after step {place} it told {told}, heard was {heard}"
            for place, told, heard in found
            if told != heard
        ]
        print(f"{productions}: they disagree after {len(wrong)} of {len(found)} crashes")
        print("".join(f"    {each}\n" for each in wrong), end="")


if __name__ == "__main__":
    main()
