from __future__ import annotations

import pytest

from tests.unit.engine.workers.state.test_keyed_state import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
