"""Deliberate mistakes that the search must catch: each puts a former defect back for as long as its
context lasts.

    @mistake(within=40, features="ttl callback")
    def state_never_expires() -> Context:
        \"\"\"A state with a ttl is kept for ever.\"\"\"
        return replaced(_Typed, "expired", lambda self, cell: False)

One of the first ``within`` cases whose pipelines have all the ``features`` must then differ in one
of the ``variants`` (all, when none is named), or from the reference; ``first`` begins with a seed
that is known to show it, so that tests take no time with others. The mistakes of each area lie in a
module of ``mutations/``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.search.generate import Unlucky, case
from tests.search.variants import Finding, chosen, examine
from tests.sim.replacing import replaced

__all__ = ["MUTATIONS", "Context", "Mutation", "SeededMistakes", "mistake", "replaced"]

Context = AbstractContextManager[None]


class SeededMistakes(dict[str, tuple[Callable[[], Context], range]]):
    """Mistakes by their names, each with the seeds of which one must show it: of a search of its
    own."""

    def enlist(
        self, within: int, first: int = 1
    ) -> Callable[[Callable[[], Context]], Callable[[], Context]]:
        """A decorator that enlists a mistake, to be shown ``within`` so many seeds from ``first``
        on."""

        def enlisted(make: Callable[[], Context]) -> Callable[[], Context]:
            self[make.__name__] = make, range(first, first + within)
            return make

        return enlisted


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake, and where to look for what it breaks."""

    name: str
    make: Callable[[], Context]
    within: int
    features: frozenset[str]
    variants: frozenset[str]
    first: int

    def caught(self) -> Finding | None:
        """The first case that differs with the mistake in the code, and not without it."""
        for seed in range(self.first, self.first + self.within):
            try:
                drawn = case(seed, self.features)
            except Unlucky:
                continue
            ways = chosen(seed, len(self.variants) or 5, sorted(self.variants))
            with self.make():
                found = examine(drawn, ways)
            if found and not examine(drawn, [found[0].way]):
                return found[0]
        return None


MUTATIONS: dict[str, Mutation] = {}


def mistake(
    within: int, features: str = "", variants: str = "", first: int = 1
) -> Callable[[Callable[[], Context]], Callable[[], Context]]:
    """Enlist a mutation. ``features`` and ``variants`` are words, see ``generate/`` and
    ``variants.py``."""

    def enlist(make: Callable[[], Context]) -> Callable[[], Context]:
        name = make.__name__
        words, ways = frozenset(features.split()), frozenset(variants.split())
        MUTATIONS[name] = Mutation(name, make, within, words, ways, first)
        return make

    return enlist
