"""The aggregate functions by the names they have in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.aggregates import choice as aggregates_choice
from millwheel.core.aggregates import numeric as aggregates_numeric
from millwheel.core.aggregates import sketches as aggregates_sketch
from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.own import OwnAggregator

FUNCTIONS = {**aggregates_numeric.FUNCTIONS, **aggregates_choice.FUNCTIONS, **aggregates_sketch.FUNCTIONS}


def make_aggregator(
    function: str, options: Mapping[str, Any] | None = None, load: Callable[[str], Any] | None = None
) -> Aggregator[Any]:
    """A built-in aggregator, or the user's own when ``function`` is ``module:Class``, made with ``options``.

    ValueError, with the names or settings there are, for an unknown function or option.
    """
    given = options or {}
    if ":" in function:
        return _own(function, given, load)
    known = FUNCTIONS.get(function)
    if known is None:
        raise ValueError(
            f"unknown aggregate function {function!r}; there are {', '.join(sorted(FUNCTIONS))}, "
            "or a class of your own as module:Class"
        )
    for option in sorted(set(given) - set(known.options)):
        has = f"it has {', '.join(known.options)}" if known.options else "it has none"
        raise ValueError(f"{function} has no option {option!r}; {has}")
    return known.make(given)


def _own(function: str, options: Mapping[str, Any], load: Callable[[str], Any] | None) -> Aggregator[Any]:
    if load is None:
        raise ValueError(f"{function!r} names a class of your own, which cannot be loaded here")
    made = load(function)(**options)
    if isinstance(made, Aggregator):
        return OwnAggregator(made)
    raise ValueError(f"{function!r} is no Aggregator; derive it from millwheel.Aggregator")
