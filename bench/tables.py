"""Tables of Markdown out of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.figures import Figure
from bench.stats import Spread, spread

Series = dict[tuple[str, str], list[Figure]]
"""By (contestant, variant), in the order in which they first ran."""

UNITS = {"ms": "ms", "s": "s", "mb": "MB", "us": "µs", "rows": "rows", "percent": "%"}


def series(figures: Iterable[Figure]) -> Series:
    """The runs of each contestant. Failed ones stay: a table must not hide them."""
    found: Series = {}
    for figure in figures:
        found.setdefault((figure.contestant, figure.variant), []).append(figure)
    return found


def of_metric(runs: Sequence[Figure], metric: str) -> Spread | None:
    """The spread over the runs that were right; None when there is none."""
    values = [
        figure.metrics[metric]
        for figure in runs
        if metric in figure.metrics and figure.correct is not False
    ]
    return spread(values) if values else None


def number(value: float) -> str:
    """Three digits that count; thousands with commas, millions as M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} M"
    if abs(value) >= 1e3:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def cell(found: Spread | None) -> str:
    """``median (least to greatest)``, or the median alone where all runs gave the same."""
    if found is None:
        return "no result"
    median, least, greatest = map(number, (found.median, found.least, found.greatest))
    return median if least == greatest else f"{median} ({least} to {greatest})"


def table(found: Series, metrics: Sequence[str], first: str = "", *, with_runs: bool = True) -> str:
    """One row per contestant and variant, one column per metric: medians, and for the first metric
    the spread. With ``first``, the first row's contestant is compared with the others by the ratio
    of the medians of that metric, within the same variant. ``with_runs`` adds how many runs of each
    row were right."""
    names = [*["runs"] * with_runs, *map(title, metrics), *["ours against it"] * bool(first)]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for (contestant, variant), runs in found.items():
        cells = [f"{contestant}{f', {variant}' if variant else ''}"]
        cells += [right_runs(runs)] * with_runs
        cells += [_cell(runs, metric, spread=metric == metrics[0]) for metric in metrics]
        if first:
            cells.append(_against(found, contestant, variant, first))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(runs: Sequence[Figure], metric: str, spread: bool) -> str:
    if not _has(runs, metric):
        return "–"
    found = of_metric(runs, metric)
    return cell(found) if spread or found is None else number(found.median)


def title(metric: str) -> str:
    """``records_per_s`` as ``records/s``, ``p50_ms`` as ``p50, ms``, ``us_per_record`` as ``µs per
    record``."""
    if metric.endswith("_per_s"):
        return metric.removesuffix("_per_s").replace("_", " ") + "/s"
    name, per, each = metric.partition("_per_")
    what, _, unit = name.rpartition("_")
    if unit not in UNITS or not (what or per):
        return metric.replace("_", " ")
    return f"{what}{', ' if what else ''}{UNITS[unit]}{per}{each}".replace("_", " ")


def panels(found: Series, more: Sequence[str]) -> tuple[Series, Series]:
    """The series for the table of a part, and those that have metrics of its second table
    instead."""
    second = {
        name: runs
        for name, runs in found.items()
        if any(set(more) & set(figure.metrics) for figure in runs)
    }
    return {name: runs for name, runs in found.items() if name not in second}, second


def _has(runs: Sequence[Figure], metric: str) -> bool:
    """Whether there should be a figure: a run that was right has none of a metric that is not
    measured for it."""
    right = [figure for figure in runs if figure.metrics and figure.correct is not False]
    return not right or any(metric in figure.metrics for figure in right)


def right_runs(runs: Sequence[Figure]) -> str:
    """How many runs were right: ``5``, or ``4 of 5``."""
    right = sum(not figure.error and figure.correct is not False for figure in runs)
    return str(right) if right == len(runs) else f"{right} of {len(runs)}"


def _against(found: Series, contestant: str, variant: str, metric: str) -> str:
    ours, other = (
        of_metric(found.get((name, variant), []), metric) for name in ("millwheel", contestant)
    )
    if contestant == "millwheel" or ours is None or other is None or not other.median:
        return ""
    return f"{ours.median / other.median:.2f}×"
