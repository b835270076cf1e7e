"""Joins whose results fit into one commit, and the same ones without room, so that they span
several."""

from __future__ import annotations

import pytest

from millwheel.engine.workers.operators import suspension
from millwheel.engine.workers.operators.keyed_joins import interval


def take_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bundle has room for one result."""
    monkeypatch.setattr(suspension, "ROOM_BYTES", 1)
    for module in (suspension, interval):
        monkeypatch.setattr(module, "LEAST_BYTES", 1)
    monkeypatch.setattr(interval, "_AT_ONCE", 1)


@pytest.fixture(params=["all at once", "without room"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without room":
        take_room(monkeypatch)
