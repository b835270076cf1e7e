from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.connectors.postgres.source import shares


@given(st.integers(-100, 100), st.integers(0, 200), st.integers(1, 20))
def test_each_key_lies_in_one_share(low: int, width: int, count: int) -> None:
    found = shares(low, low + width - 1, count)
    assert [key for first, last in found for key in range(first, last + 1)] == list(range(low, low + width))
    assert 1 <= len(found) <= max(1, count)
