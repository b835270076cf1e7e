"""The aggregate functions of a window, for ``aggregate``:

    from millwheel import agg

    .aggregate({"hits": agg.count(), "p99": agg.quantile("latency_ms", 0.99)})

``of`` is a field or an expression over the record; ``where`` is an expression that a record must
satisfy to count. docs/pipeline.md states the cost of each function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.aggregates.base import Aggregator

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "collect",
    "count",
    "count_distinct",
    "first",
    "first_row",
    "last",
    "last_row",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "own",
    "quantile",
    "quantiles",
    "stddev",
    "sum",
    "top_k",
    "top_rows",
    "variance",
]


@dataclass(frozen=True)
class Aggregate:
    """One field of a result. ``function`` is a built-in's name, or a class (or factory) of the
    user's own."""

    function: str | Callable[..., Aggregator[Any]]
    of: str = ""
    where: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def count(of: str = "", *, where: str = "") -> Aggregate:
    """The number of records; with ``of``, only of records that have this field."""
    return Aggregate("count", of, where)


def sum(of: str, *, where: str = "") -> Aggregate:
    """The exact sum, independent of the order."""
    return Aggregate("sum", of, where)


def mean(of: str, *, where: str = "") -> Aggregate:
    """The mean, exact until the last division."""
    return Aggregate("mean", of, where)


def variance(of: str, *, population: bool = False, where: str = "") -> Aggregate:
    """The variance of a sample, or of a whole ``population``."""
    return Aggregate("variance", of, where, _population(population))


def stddev(of: str, *, population: bool = False, where: str = "") -> Aggregate:
    """The standard deviation of a sample, or of a whole ``population``."""
    return Aggregate("stddev", of, where, _population(population))


def min(of: str, *, where: str = "") -> Aggregate:
    """The smallest number or text."""
    return Aggregate("min", of, where)


def max(of: str, *, where: str = "") -> Aggregate:
    """The largest number or text."""
    return Aggregate("max", of, where)


def first(of: str, *, where: str = "") -> Aggregate:
    """The value of the earliest record."""
    return Aggregate("first", of, where)


def last(of: str, *, where: str = "") -> Aggregate:
    """The value of the latest record."""
    return Aggregate("last", of, where)


def top_k(of: str, k: int, *, where: str = "") -> Aggregate:
    """The ``k`` largest values."""
    return Aggregate("top_k", of, where, {"k": k})


def max_by(of: str, *, where: str = "") -> Aggregate:
    """The record with the largest ``of``, whole. Of equal ones the earliest."""
    return Aggregate("max_by", of, where)


def min_by(of: str, *, where: str = "") -> Aggregate:
    """The record with the smallest ``of``, whole. Of equal ones the earliest."""
    return Aggregate("min_by", of, where)


def first_row(*, where: str = "") -> Aggregate:
    """The earliest record, whole."""
    return Aggregate("first_row", "", where)


def last_row(*, where: str = "") -> Aggregate:
    """The latest record, whole."""
    return Aggregate("last_row", "", where)


def top_rows(*by: str, k: int, rank: str = "", where: str = "") -> Aggregate:
    """The first ``k`` records by one or several orders (``"price desc", "at"``), as a list. With
    ``rank``, each has a field of this name with its place, from 1."""
    return Aggregate("top_rows", "", where, {"by": list(by), "k": k, **_rank(rank)})


def collect(of: str, *, where: str = "") -> Aggregate:
    """All values, in order of arrival."""
    return Aggregate("collect", of, where)


def count_distinct(of: str, *, where: str = "") -> Aggregate:
    """The exact number of distinct values. Keeps them all."""
    return Aggregate("count_distinct", of, where)


def approx_count_distinct(of: str, *, lg_k: int | None = None, where: str = "") -> Aggregate:
    """The approximate number of distinct values, in a few kB; ``lg_k`` (default 12) is the binary
    logarithm of the size."""
    return Aggregate("approx_count_distinct", of, where, {} if lg_k is None else {"lg_k": lg_k})


def quantile(of: str, q: float, *, accuracy: float | None = None, where: str = "") -> Aggregate:
    """The approximate value below which the share ``q`` of all values lies (0.99), within a
    relative ``accuracy`` (default 0.01)."""
    return Aggregate("quantile", of, where, {"q": q, **_accuracy(accuracy)})


def quantiles(
    of: str, q: Sequence[float], *, accuracy: float | None = None, where: str = ""
) -> Aggregate:
    """Several quantiles as a list, at the cost of one."""
    return Aggregate("quantiles", of, where, {"q": list(q), **_accuracy(accuracy)})


def own(
    function: Callable[..., Aggregator[Any]],
    of: str = "",
    *,
    options: Mapping[str, Any] | None = None,
    where: str = "",
) -> Aggregate:
    """Your own :class:`millwheel.Aggregator`: the class, or a factory, called with ``options``."""
    return Aggregate(function, of, where, options or {})


def __getattr__(name: str) -> Callable[..., Aggregate]:
    """A function that has no signature here: ``agg.name(of, where=…, option=…)``."""
    from millwheel.connect.options import did_you_mean

    # heavy, and most programs need none of it
    from millwheel.core.aggregates.functions import FUNCTIONS

    if name not in FUNCTIONS:
        raise AttributeError(f"agg has no function {name!r}{did_you_mean(name, sorted(FUNCTIONS))}")

    def made(of: str = "", *, where: str = "", **options: Any) -> Aggregate:
        return Aggregate(name, of, where, options)

    return made


def _population(population: bool) -> dict[str, Any]:
    return {"population": True} if population else {}


def _rank(rank: str) -> dict[str, str]:
    return {"rank": rank} if rank else {}


def _accuracy(accuracy: float | None) -> dict[str, Any]:
    return {} if accuracy is None else {"accuracy": accuracy}
