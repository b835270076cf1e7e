"""Runs in alternation: every contestant once, then every one again; each figure is kept as soon as
it is known."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench import figures
from bench.environments import UnavailableEnvironmentError
from bench.figures import Figure
from bench.machine import machine
from bench.paths import RESULTS, cache, quick_results


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asked for. ``peers`` empty: all; ``resume``: go on with the part's last
    campaign."""

    runs: int
    quick: bool = False
    ours_only: bool = False
    peers: tuple[str, ...] = ()
    resume: bool = False
    keep: bool = False
    results: Path | None = None

    @property
    def file(self) -> Path:
        """Where figures go."""
        return self.results or (quick_results() if self.quick else RESULTS)

    def takes(self, contestant: str) -> bool:
        """Whether a contestant was asked for, by the beginning of its name without commas. Ours
        always is."""
        if contestant.startswith("millwheel"):
            return True
        name = contestant.replace(",", "")
        return not self.ours_only and (
            not self.peers or any(name.startswith(peer) for peer in self.peers)
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave; ``error`` instead of metrics when it went wrong."""

    metrics: dict[str, float]
    correct: bool | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to run in every round. ``measure`` gets an empty folder that is deleted
    afterwards."""

    contestant: str
    variant: str
    measure: Callable[[Path], Measured]


def alternate(
    part: str, entries: Sequence[Entry], settings: dict[str, Any], wanted: Wanted
) -> list[Figure]:
    """Run everything ``wanted.runs`` times, and return the campaign's figures."""
    campaign, known = _campaign(part, settings, wanted)
    done = {(figure.contestant, figure.variant, figure.run) for figure in known if not figure.error}
    for run in range(wanted.runs):
        for entry in entries:
            if (
                wanted.takes(entry.contestant)
                and (entry.contestant, entry.variant, run) not in done
            ):
                figure = _one(part, entry, run, campaign, settings, wanted)
                figures.append(wanted.file, figure)
                known.append(figure)
                _say(figure)
    return known


def _campaign(part: str, settings: dict[str, Any], wanted: Wanted) -> tuple[str, list[Figure]]:
    """A new campaign, or the last one of the part with the same settings."""
    if wanted.resume:
        known = figures.latest_campaign(list(figures.read(wanted.file)), part)
        if known and dict(known[-1].settings) == settings:
            return known[-1].campaign, known
    return uuid4().hex[:12], []


def _one(
    part: str, entry: Entry, run: int, campaign: str, settings: dict[str, Any], wanted: Wanted
) -> Figure:
    name = re.sub(r"[^\w]+", "-", f"{part}-{entry.contestant}-{entry.variant}-{run}")
    folder = cache() / "runs" / campaign / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before = machine()
    try:
        measured = entry.measure(folder)
    except UnavailableEnvironmentError as ex:
        measured = Measured({}, None, str(ex))
    if not wanted.keep and not measured.error:
        shutil.rmtree(folder, ignore_errors=True)
    return Figure(
        part=part,
        contestant=entry.contestant,
        variant=entry.variant,
        run=run,
        campaign=campaign,
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        settings=settings,
        machine=before,
        metrics={name: round(value, 6) for name, value in measured.metrics.items()},
        correct=measured.correct,
        error=measured.error,
    )


def _say(figure: Figure) -> None:
    what = " ".join(f"{name}={value:,.6g}" for name, value in figure.metrics.items())
    verdict = {True: "correct", False: "WRONG", None: ""}[figure.correct]
    told = figure.error.strip()[-300:] if figure.error else f"{what} {verdict}"
    print(
        f"{figure.part} run {figure.run} {figure.contestant} {figure.variant}: {told}",
        file=sys.stderr,
        flush=True,
    )
