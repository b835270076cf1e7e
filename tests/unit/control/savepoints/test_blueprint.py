"""What of a pipeline decides whether another one can go on with its state."""

from __future__ import annotations

import msgspec
import pytest

from millwheel.control.savepoints import blueprint
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from tests.unit.control.savepoints.test_compatibility import CLASSES, SPEC


def test_a_blueprint_is_the_same_after_it_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])
    made = blueprint_of(SPEC)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Blueprint) == made
