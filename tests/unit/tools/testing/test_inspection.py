"""What a test can see of a running pipeline."""

from __future__ import annotations

from tests.unit.tools.testing.test_pipeline_harness import Make, order


def test_state_is_what_the_callbacks_left(make: Make) -> None:
    harness = make()
    harness.push("orders", [order(1), order(2, worth=7, shop="south"), order(3, "bob")])
    state = harness.state("accounts", "ann")
    assert (state["account"].worth, state["seen"], state["by_shop"]) == (
        12,
        ["o1", "o2"],
        {"north": 1, "south": 1},
    )
    assert harness.state("accounts", "nobody")["seen"] == []
