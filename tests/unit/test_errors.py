from __future__ import annotations

import pytest

from millwheel import errors


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
