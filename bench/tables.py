"""Tables of Markdown out of figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.figures import Figure
from bench.stats import Spread, spread

Series = dict[tuple[str, str], list[Figure]]
"""By (contestant, variant), in the order in which they first ran."""

UNITS = {"per_s": "/s", "ms": " ms", "s": " s", "mb": " MB", "us": " µs", "rows": ""}


def series(figures: Iterable[Figure]) -> Series:
    """The runs of each contestant. Failed ones stay: a table must not hide them."""
    found: Series = {}
    for figure in figures:
        found.setdefault((figure.contestant, figure.variant), []).append(figure)
    return found


def of_metric(runs: Sequence[Figure], metric: str) -> Spread | None:
    """The spread over the runs that were right; None when there is none."""
    values = [figure.metrics[metric] for figure in runs if metric in figure.metrics and figure.correct is not False]
    return spread(values) if values else None


def number(value: float) -> str:
    """Three digits that count; thousands with commas, millions as M."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} M"
    if abs(value) >= 1e3:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def cell(found: Spread | None) -> str:
    """``median (least to greatest)``."""
    if found is None:
        return "no result"
    if found.runs == 1:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)} to {number(found.greatest)})"


def table(found: Series, metrics: Sequence[str], first: str = "") -> str:
    """One row per contestant and variant, one column per metric. With ``first``, the first row's contestant is
    compared with the others by the ratio of the medians of that metric, within the same variant."""
    names = [title(metric) for metric in metrics]
    lines = ["| | runs | " + " | ".join(names) + (" | ours against it |" if first else " |")]
    lines.append("|---" * (len(metrics) + 2 + bool(first)) + "|")
    for (contestant, variant), runs in found.items():
        cells = [f"{contestant}{f', {variant}' if variant else ''}", _runs(runs)]
        cells += [cell(of_metric(runs, metric)) for metric in metrics]
        if first:
            cells.append(_against(found, contestant, variant, first))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def title(metric: str) -> str:
    """``records_per_s`` as ``records/s``, ``p50_ms`` as ``p50, ms``."""
    if metric.endswith("_per_s"):
        return metric.removesuffix("_per_s").replace("_", " ") + "/s"
    name, _, unit = metric.rpartition("_")
    if unit not in UNITS or not name:
        return metric.replace("_", " ")
    return f"{name.replace('_', ' ')}, {'MB' if unit == 'mb' else 'µs' if unit == 'us' else unit}"


def _runs(runs: Sequence[Figure]) -> str:
    right = sum(not figure.error and figure.correct is not False for figure in runs)
    return str(right) if right == len(runs) else f"{right} of {len(runs)}"


def _against(found: Series, contestant: str, variant: str, metric: str) -> str:
    ours, other = (of_metric(found.get((name, variant), []), metric) for name in ("millwheel", contestant))
    if contestant == "millwheel" or ours is None or other is None or not other.median:
        return ""
    return f"{ours.median / other.median:.2f}×"
