"""The contract of a lookup: what another system knows of a key, asked for while records are processed.

Third parties register a factory under the entry point group ``millwheel.lookups``: ``name = "package.module:factory"``,
where ``factory(options, folder) -> Lookup``.

What a lookup answers depends on when it is asked. So results that hold answers are no function of the input alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.errors import MillwheelError

LookupKey = tuple[Any, ...]
"""The values that a record is looked up by, in the order of :attr:`Lookup.by`. None of them is None."""


class LookupRefusedError(MillwheelError):
    """The target does not answer because of at least one of the keys, in its words."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The target cannot answer for this key, in its words: the records become dead letters."""

    reason: str


class Lookup(ABC):
    """One thread at a time uses it. It is made by the driver, which calls :meth:`check`, and for each shard, and
    connects when it is first used, and again after an UnavailableError. ``where`` names the target in sentences,
    without secrets. ``by`` are expressions over a record's value, most often fields: what a key is made of."""

    where: str = "the target"
    by: tuple[str, ...] = ()

    def check(self) -> None:
        """Called once by the driver before anything starts. Raises SetupError when the target cannot be asked."""
        return

    @abstractmethod
    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        """One answer for each key, in their order, with one request if that is possible: plain data, None where the
        target knows nothing, :class:`NoAnswer` where it cannot tell. The keys are distinct.

        Raises UnavailableError when the target does not answer: it is asked again until it does, and the records wait.
        Raises :class:`LookupRefusedError` when it is not known which key is to blame: then fewer keys are asked for at
        a time. It must raise within seconds: nobody else can end it."""

    def close(self) -> None:
        """Release connections. Never called while another method runs."""
        return


def answers_to(lookup: Lookup, keys: Sequence[LookupKey]) -> list[Any]:
    """What it answers to each key; halves of the keys where it refuses all of them."""
    try:
        found = list(lookup.look_up(keys))
    except LookupRefusedError as ex:
        if len(keys) == 1:
            return [NoAnswer(str(ex))]
        half = len(keys) // 2
        return answers_to(lookup, keys[:half]) + answers_to(lookup, keys[half:])
    if len(found) != len(keys):
        return [NoAnswer(f"{lookup.where} gave {len(found)} answers to {len(keys)} keys")] * len(keys)
    return found
