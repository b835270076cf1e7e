"""What strong exactly-once costs over at-least-once with weak productions, beside what MillWheel's
paper says of it.

The ratios are made within each round, in which both ran one after the other; the table gives their
median and spread.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.figures import Figure
from bench.paired import ratios
from bench.stats import Spread, spread
from bench.tables import cell, title

STRONG = "strong"
PAPER = {"p50_ms": 33.7 / 3.6, "p95_ms": 93.8 / 30.0}
"""A stage with exactly-once and strong productions over one without both: median and 95th
percentile, in ms."""


def table(campaign: Sequence[Figure]) -> str:
    """One row for each weaker guarantee, and the paper's; empty when no round has both."""
    rows = {
        to: [ratios(campaign, metric, STRONG, to) for metric in PAPER]
        for to in ("at least once", "weak")
    }
    if not any(found for cells in rows.values() for found in cells):
        return ""
    lines = [
        "| how many times as long | "
        + " | ".join(title(name).partition(",")[0] for name in PAPER)
        + " |"
    ]
    lines.append("|---" * (len(PAPER) + 1) + "|")
    for to, cells in rows.items():
        lines.append(
            f"| millwheel, strong : {to} | " + " | ".join(cell(found) for found in cells) + " |"
        )
    lines.append(
        "| MillWheel's paper | " + " | ".join(f"{value:.2g}" for value in PAPER.values()) + " |"
    )
    return "\n".join(lines)


def bars(campaign: Sequence[Figure]) -> list[tuple[str, Spread]]:
    """The rows of its plot: ours against at-least-once, and the paper's; nothing when there is no
    round with both."""
    rows = []
    for metric, paper in PAPER.items():
        found = ratios(campaign, metric, STRONG, "at least once")
        if found is not None:
            name = title(metric).partition(",")[0]
            rows += [(f"millwheel, {name}", found), (f"the paper, {name}", spread([paper]))]
    return rows
