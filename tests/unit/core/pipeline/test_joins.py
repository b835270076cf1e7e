"""Which version of a key a record may see."""

from __future__ import annotations

import pytest

from millwheel.core.pipeline.joins import Version, known, newer


@pytest.mark.parametrize(("at", "expected"), [(19, None), (20, "new"), (21, "new"), (None, "new")])
def test_a_record_sees_nothing_that_was_said_after_it(at: int | None, expected: str | None) -> None:
    assert known(Version(20, "new"), at) == expected
    assert known(None, at) is None


@pytest.mark.parametrize(("at", "expected"), [(19, False), (20, True), (21, True)])
def test_a_version_gives_way_to_what_was_said_after_it(at: int, expected: bool) -> None:
    assert newer(at, Version(20, "v")) is expected
    assert newer(at, None)
