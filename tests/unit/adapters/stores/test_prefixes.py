from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.stores.prefixes import after


@given(prefix=st.binary(max_size=3), key=st.binary(max_size=4))
def test_the_keys_with_a_prefix_are_those_from_it_to_the_first_one_after(
    prefix: bytes, key: bytes
) -> None:
    end = after(prefix)
    assert key.startswith(prefix) == (key >= prefix and (not end or key < end))
