"""What a deliberate mistake is. A mutation replaces one function for as long as its context lasts.
Where a mistake needs a certain fault to show, the mutation names the faults to draw from; of
``within`` seeds, from ``first`` on, one must fail. ``first`` is a seed that is known to, where
those before it would only take time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.sim.faults import ALL_FAULTS
from tests.sim.replacing import replaced
from tests.sim.run import Case

__all__ = ["MUTATIONS", "Context", "Mutation", "mistake", "replaced"]

Context = AbstractContextManager[None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake, and where to look for what it breaks."""

    name: str
    make: Callable[[], Context]
    within: int
    faults: frozenset[str] = ALL_FAULTS
    workload: str = ""
    savepoint: bool = False
    finish: bool = False
    first: int = 1
    embedded: bool = False
    days: bool = False

    def cases(self) -> Iterator[Case]:
        """The runs of which one must fail."""
        for seed in range(self.first, self.first + self.within):
            yield Case(
                seed,
                self.faults,
                self.workload,
                savepoint=self.savepoint,
                finish=self.finish,
                embedded=self.embedded,
                days=self.days,
            )


_STALE = re.compile(r"unexpected (Type|Attribute|Name|Import|ModuleNotFound)Error")


def is_stale(failure: str) -> bool:
    """Whether a run failed because the mistake does not fit the code any more, which proves
    nothing."""
    return _STALE.search(failure) is not None


MUTATIONS: dict[str, Mutation] = {}


def mistake(
    within: int,
    faults: str = "",
    workload: str = "",
    savepoint: bool = False,
    finish: bool = False,
    first: int = 1,
    embedded: bool = False,
    days: bool = False,
) -> Callable[[Callable[[], Context]], Callable[[], Context]]:
    """Enlist a mutation."""

    def enlist(make: Callable[[], Context]) -> Callable[[], Context]:
        name = make.__name__
        kinds = frozenset(faults.split()) - {"none"} if faults else ALL_FAULTS
        MUTATIONS[name] = Mutation(
            name, make, within, kinds, workload, savepoint, finish, first, embedded, days
        )
        return make

    return enlist
