"""The order of files among which shards divide a source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.sources.files.dealing import dealt


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 1_000), min_size=2))
def test_either_half_of_the_files_has_about_half_of_their_bytes(sizes: dict[str, int]) -> None:
    order = dealt(sizes)
    assert sorted(order) == sorted(sizes)
    assert order == dealt(dict(reversed(sizes.items())))
    middle = len(order) // 2
    lower, upper = (sum(sizes[name] for name in half) for half in (order[:middle], order[middle:]))
    assert abs(lower - upper) <= max(sizes.values())
