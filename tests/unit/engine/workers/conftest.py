"""What the tests of workers share."""

from __future__ import annotations

from functools import partialmethod

import pytest

from millwheel.engine.workers.shard.admission import ShardLimits


@pytest.fixture(autouse=True)
def columns_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundles of a few records are grouped in columns, as large ones are, unless a test says
    otherwise."""
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, rows_below=0))
