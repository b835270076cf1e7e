from __future__ import annotations

from typing import Any

import pytest

from millwheel import errors
from millwheel.api import Computation, ListState, MapState, ValueState, sets_timers


class Stateful(Computation):
    seen = ValueState(int, default=0, ttl="1m")
    items = ListState(str)
    entries = MapState(int, ttl=5)


def test_a_state_knows_its_name_type_and_time_to_live() -> None:
    assert (Stateful.seen.name, Stateful.seen.type, Stateful.seen.ttl_us) == (
        "seen",
        int,
        60_000_000,
    )
    assert (Stateful.items.ttl_us, Stateful.entries.ttl_us) == (None, 5)
    with pytest.raises(ValueError, match="soon"):
        ValueState(int, ttl="soon")


@pytest.mark.parametrize("name", ["seen", "items", "entries"])
def test_state_outside_of_a_callback_says_how_to_test_it(name: str) -> None:
    with pytest.raises(
        AttributeError, match=f"state '{name}' can only be used while .* use millwheel.testing"
    ):
        getattr(Stateful(), name)


def test_a_callback_that_is_missing_is_named_with_its_signature() -> None:
    anything: Any = None
    with pytest.raises(
        TypeError, match=r"Stateful has an input but no process_record\(self, ctx, record\)"
    ):
        Stateful().process_record(anything, anything)
    with pytest.raises(TypeError, match="Stateful sets timers but has no process_timer"):
        Stateful().process_timer(anything, anything)
    with pytest.raises(TypeError, match="Stateful has a window but no process_window"):
        Stateful().process_window(anything, anything, anything, anything)


def test_timers_may_call_whatever_has_a_method_for_them() -> None:
    class Timed(Stateful):
        def process_timer(self, ctx: Any, timer: Any) -> None:
            pass

    assert [sets_timers(kind) for kind in (Stateful, Timed, object, "text")] == [
        False,
        True,
        True,
        True,
    ]


# errors.py


def test_every_error_of_ours_is_in_one_tree_and_public() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert all(issubclass(kind, errors.MillwheelError) for kind in kinds)
    assert {kind.__name__ for kind in kinds} <= set(errors.__all__)


def test_a_pipeline_error_tells_all_problems_and_keeps_them_apart() -> None:
    error = errors.PipelineError("p.yaml:1: a", "p.yaml:2: b")
    assert str(error) == "p.yaml:1: a\np.yaml:2: b"
    assert error.problems == ("p.yaml:1: a", "p.yaml:2: b")


def test_a_promise_that_is_kept_costs_nothing_and_one_that_is_not_is_told() -> None:
    errors.invariant(True, "never shown")
    with pytest.raises(errors.InvariantError, match="two owners"):
        errors.invariant(False, "two owners")
    with pytest.raises(errors.InvariantError, match="nothing is known about 5"):
        errors.unreachable(5)  # type: ignore[arg-type]
