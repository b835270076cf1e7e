"""What the classes of callbacks say about order."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.api import Computation
from millwheel.language.spec.callback_code import LoadedCode
from tests.computations import computation_spec


class Plain(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        pass


class Timed(Plain):
    def process_timer(self, ctx: Any, timer: Any) -> None:
        pass


class Together(Plain):
    def process_batch(self, ctx: Any, records: Any) -> None:
        pass


class TimedTogether(Timed, Together):
    pass


def made(ctx: Any) -> None:
    """A function that a name may stand for, in place of a class."""


CODE = LoadedCode(globals().__getitem__)


@pytest.mark.parametrize(
    ("callback", "timers", "batches"),
    [
        ("Plain", False, False),
        ("Timed", True, False),
        ("Together", False, True),
        ("TimedTogether", True, True),
    ],
)
def test_a_class_sets_timers_and_takes_batches_if_it_or_a_base_of_its_own_says_how(
    callback: str, timers: bool, batches: bool
) -> None:
    spec = computation_spec("c", (), callback=callback)
    assert (CODE.sets_timers(spec), CODE.takes_batches(spec)) == (timers, batches)


def test_what_is_no_class_of_computations_may_set_timers_and_takes_no_batches() -> None:
    spec = computation_spec("c", (), callback="made")
    assert (CODE.sets_timers(spec), CODE.takes_batches(spec)) == (True, False)


def test_without_a_callback_no_code_is_loaded() -> None:
    spec = computation_spec("c", ())
    assert (CODE.sets_timers(spec), CODE.takes_batches(spec)) == (False, False)
