"""What tests of records that wait in columns share."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest

from millwheel.engine.workers.shard.bundle_sizes import ShardLimits
from millwheel.testing import PipelineHarness


def letters_of(harness: PipelineHarness) -> list[Any]:
    """What dead letters say; tracebacks tell also what else was tried in the same bundle."""
    told = ("reason", "value", "timestamp", "key", "attempts", "state")
    return sorted([repr([each[name] for name in told]) for each in harness.read("dead_letters")])


def never_few(patch: pytest.MonkeyPatch) -> None:
    """No bundle is so small that it goes by rows."""
    patch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, rows_below=0))
