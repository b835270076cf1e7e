"""What a case is while it is drawn: the streams there are by then, and the choices that the seed
makes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.search.facts import Facts, Free


@dataclass(slots=True)
class Flow:
    """A stream as far as it is drawn: which fields its values have, and what is known of its
    order."""

    name: str
    fields: frozenset[str]
    facts: Facts
    key: Any
    typed: bool = False
    """Its values are structs."""
    weak: bool = False
    """Its producer sends first and commits then."""
    last: bool = False
    """Its rows lie at the end of time: they come of a global window, or of counts."""
    versions: bool = False
    """Its rows are versions of groups: windows of limited length do not take it."""
    final: bool = False
    """No computation takes it."""

    @property
    def retracts(self) -> bool:
        """Whether it takes rows back."""
        return self.facts.retracts


@dataclass(slots=True)
class Draft:
    """A pipeline that grows."""

    rng: random.Random
    stated: bool
    free: Free
    """Something must be determined although runs differ in this."""
    wanted: frozenset[str]
    columnar: bool
    """The streams may be read into columns."""
    tree: dict[str, Any]
    flows: dict[str, Flow] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)

    def chance(self, share: float, *words: str) -> bool:
        """True so often; then the words are features. What is wanted is drawn more often."""
        if self.rng.random() >= (max(share, 0.7) if self.wanted.intersection(words) else share):
            return False
        self.features.update(words)
        return True

    def pick(self, options: Iterable[Any]) -> Any:
        """One of them."""
        return self.rng.choice(list(options))
