"""One measured run as one JSON line, appended to a file as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of one contestant gave.

    Runs with the same ``campaign`` were taken in alternation on one machine, so they may be
    compared. ``metrics`` have their unit last in the name; ``settings`` are what a repetition
    needs; ``error`` says why there are no metrics.
    """

    part: str
    contestant: str
    variant: str
    run: int
    campaign: str
    at: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    metrics: Mapping[str, float] = {}
    correct: bool | None = None
    error: str = ""


def append(path: Path, figure: Figure) -> None:
    """Write it behind the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as out:
        out.write(msgspec.json.encode(figure) + b"\n")


def read(path: Path) -> Iterator[Figure]:
    """All figures of a file, oldest first; none when there is no file. A line that was cut off is
    left out."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            yield msgspec.json.decode(line, type=Figure)
        except msgspec.DecodeError:
            continue


def latest_campaign(figures: list[Figure], part: str) -> list[Figure]:
    """The figures of a part's newest campaign, in order; empty when there are none."""
    of_part = [figure for figure in figures if figure.part == part]
    return [figure for figure in of_part if figure.campaign == of_part[-1].campaign]
