from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.connect.lookups.base import (
    Lookup,
    LookupKey,
    LookupRefusedError,
    NoAnswer,
    answers_to,
)


class Squares(Lookup):
    """Refuses whatever holds a negative number; gives one answer too few when 0 is asked for."""

    where = "the squares"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        numbers = [key[0] for key in keys]
        self.asked.append(len(numbers))
        if min(numbers) < 0:
            raise LookupRefusedError(f"{min(numbers)} has no root")
        return [number * number for number in numbers if number]


def test_all_keys_are_asked_for_at_once() -> None:
    lookup = Squares()
    assert answers_to(lookup, [(1,), (2,), (3,)]) == [1, 4, 9]
    assert lookup.asked == [3]


def test_halves_find_the_key_that_is_to_blame() -> None:
    lookup = Squares()
    assert answers_to(lookup, [(1,), (2,), (-3,), (4,)]) == [1, 4, NoAnswer("-3 has no root"), 16]
    assert lookup.asked == [4, 2, 2, 1, 1]


def test_answers_that_belong_to_nobody_are_given_to_nobody() -> None:
    answers = answers_to(Squares(), [(1,), (0,), (3,)])
    assert answers == [NoAnswer("the squares gave 2 answers to 3 keys")] * 3
