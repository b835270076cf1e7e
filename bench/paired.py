"""Two variants of ours, compared within each round of a campaign: they ran one after the other, on
the same machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.figures import Figure
from bench.stats import Spread, spread


def ratios(campaign: Sequence[Figure], metric: str, one: str, other: str) -> Spread | None:
    """``one`` over ``other``, over the rounds in which both were right; None when there is none."""
    return _paired(campaign, metric, one, other, lambda a, b: a / b)


def differences(campaign: Sequence[Figure], metric: str, one: str, other: str) -> Spread | None:
    """``one`` less ``other``, over the rounds in which both were right; None when there is none."""
    return _paired(campaign, metric, one, other, lambda a, b: a - b)


def _paired(
    campaign: Sequence[Figure],
    metric: str,
    one: str,
    other: str,
    how: Callable[[float, float], float],
) -> Spread | None:
    mine, others = (_by_run(campaign, variant, metric) for variant in (one, other))
    found = [
        how(mine[run], others[run]) for run in sorted(mine.keys() & others.keys()) if others[run]
    ]
    return spread(found) if found else None


def _by_run(campaign: Sequence[Figure], variant: str, metric: str) -> dict[int, float]:
    return {
        figure.run: figure.metrics[metric]
        for figure in campaign
        if figure.contestant == "millwheel" and figure.variant == variant
        if metric in figure.metrics and figure.correct is not False
    }
