"""``python -m bench report``: the newest campaign of each part, its plots for docs/performance.md
and its tables for the docs site.

The page has a place for each part, between ``<!-- bench:A -->`` and ``<!-- /bench:A -->``, for its
plots; the rest of it is prose, and stays. ``--results FILE`` takes another
file of figures, ``--print`` writes the tables to the terminal and changes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contestants import BYTEWAX, FLINK, SPARK
from bench.figures import Figure, latest_campaign, read
from bench.parts import PARTS
from bench.paths import HOUSE, RESULTS
from bench.plots import bars
from bench.stats import Spread
from bench.tables import of_metric, panels, right_runs, series, table

PAGE = HOUSE / "docs" / "performance.md"
PICTURES = HOUSE / "docs" / "pictures"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench report", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--print", action="store_true", help="to the terminal only")
    arguments = parser.parse_args()
    found = list(read(arguments.results))
    if not found:
        print(
            f"There are no figures in {arguments.results}; run python -m bench first",
            file=sys.stderr,
        )
        return 1
    page = PAGE.read_text(encoding="utf-8")
    campaigns = {part: campaign for part in PARTS if (campaign := latest_campaign(found, part))}
    if arguments.print:
        for part, campaign in campaigns.items():
            print(f"## {part}\n\n{section(part, campaign)}\n")
        return 0
    for part, campaign in campaigns.items():
        page = place(page, part, picture(part, campaign).strip())
    PAGE.write_text(page, encoding="utf-8")
    return 0


def with_tables(page: str) -> str:
    """The page as the docs site has it: each part with its tables in front of its plots."""
    found = list(read(RESULTS))
    for part in PARTS:
        if campaign := latest_campaign(found, part):
            begin = f"<!-- bench:{part} -->\n"
            page = page.replace(begin, f"{begin}{section(part, campaign)}\n\n")
    return page


def section(part: str, campaign: list[Figure]) -> str:
    """What was measured on what, and the table. The number of runs is a column only where it
    differs."""
    found = series(campaign)
    first, second = panels(found, PARTS[part].more)
    alike = {right_runs(runs) for runs in found.values()}
    uneven = len(alike) > 1 or " of " in "".join(alike)
    lines = [
        conditions(campaign) + ("" if uneven else f" Runs of each: {alike.pop()}."),
        "",
        table(first, used(PARTS[part].metrics, campaign), PARTS[part].compared, with_runs=uneven),
    ]
    if second:
        lines += ["", table(second, used(PARTS[part].more, campaign), with_runs=uneven)]
    beside = PARTS[part].beside
    if beside is not None and (more := beside.table(campaign)):
        lines += ["", more]
    failed = {
        f"{figure.contestant}: {_first_line(figure.error)}" for figure in campaign if figure.error
    }
    return "\n".join([*lines, *(["", *(f"- {text}" for text in sorted(failed))] if failed else [])])


def used(metrics: Sequence[str], campaign: list[Figure]) -> list[str]:
    """Those of the metrics that any figure has."""
    return [name for name in metrics if any(name in figure.metrics for figure in campaign)]


def conditions(campaign: list[Figure]) -> str:
    """Day, machine, versions of peers, settings and load, in a line."""
    on, settings = campaign[-1].machine, campaign[-1].settings
    versions = peers({figure.contestant for figure in campaign})
    chosen = [f"{name.replace('_', ' ')} {value}" for name, value in settings.items()]
    loads = [figure.machine.get("load", 0) for figure in campaign]
    return (
        f"{campaign[0].at[:10]}, {on.get('cores')} cores, {on.get('system')}, Python"
        f" {on.get('python')};"
        f" {', '.join([*versions, *chosen, f'load {min(loads)} to {max(loads)}'])}."
    )


def peers(contestants: set[str]) -> list[str]:
    """The versions of the peers that took part, as they are installed for the benchmark."""
    pinned = [
        package.replace("==", " ")
        for environment in (BYTEWAX, SPARK, FLINK)
        if any(name.startswith(environment.name) for name in contestants)
        for package in environment.packages
    ]
    return [package for package in pinned if package.count(" ") == 1]


def picture(part: str, campaign: list[Figure]) -> str:
    """Draw the part's first metric; the reference to the picture, or nothing when there is nothing
    to draw."""
    metric = PARTS[part].metrics[0]
    rows = [
        (f"{name}{f', {variant}' if variant else ''}", found)
        for (name, variant), runs in series(campaign).items()
        if (found := of_metric(runs, metric)) is not None
    ]
    drawn = _draw(
        f"bench_{part.lower()}", f"{part}: {PARTS[part].title.partition(';')[0]}, {metric}", rows
    )
    beside = PARTS[part].beside
    if beside is not None and beside.bars is not None:
        drawn += _draw(
            f"bench_{part.lower()}_beside", f"{part}: {beside.title}", beside.bars(campaign)
        )
    return drawn


def _draw(name: str, title: str, rows: list[tuple[str, Spread]]) -> str:
    if not rows:
        return ""
    path = PICTURES / f"{name}.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(bars(title, rows), encoding="utf-8")
    return f"\n\n![{title}](pictures/{path.name})"


def place(page: str, part: str, text: str) -> str:
    """The page with the part's place filled. Raises ValueError when the page has no such place."""
    begin, end = f"<!-- bench:{part} -->", f"<!-- /bench:{part} -->"
    filled, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}",
        lambda _: f"{begin}\n{text}\n{end}",
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ValueError(
            f"docs/performance.md has {count} places for part {part}; it needs one: {begin} {end}"
        )
    return filled


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""


if __name__ == "__main__":
    sys.exit(main())
