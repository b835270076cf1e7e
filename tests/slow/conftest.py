from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slow.runs import Run


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    yield
    while Run.started:
        Run.started.pop().end()
