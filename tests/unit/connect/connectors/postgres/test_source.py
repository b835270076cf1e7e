from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.connectors.postgres.source import build_postgres_source, shares


@given(st.integers(-100, 100), st.integers(0, 200), st.integers(1, 20))
def test_each_key_lies_in_one_share(low: int, width: int, count: int) -> None:
    found = shares(low, low + width - 1, count)
    assert [key for first, last in found for key in range(first, last + 1)] == list(
        range(low, low + width)
    )
    assert 1 <= len(found) <= max(1, count)


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_a_position_fits_into_64_bits_whatever_the_keys_are(count: int) -> None:
    found = shares(-(2**63), 2**63 - 1, count)
    assert (found[0][0], found[-1][1]) == (-(2**63), 2**63 - 1)
    assert all(high - low + 1 < 2**63 for low, high in found)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(found))


# pages.py


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"order_by": "id"}, "needs one of the options 'table' and 'query'"),
        ({"order_by": "id", "table": "t", "query": "select 1"}, "needs one of the options"),
        ({"table": "t"}, "needs the option 'order_by'; write for example order_by: id"),
        ({"order_by": "id", "query": "select 1; drop table x"}, "more than one statement"),
        ({"order_by": "id", "table": "t", "partitions": 0}, "option 'partitions'"),
        ({"order_by": "id", "table": "t", "page_rows": 0}, "option 'page_rows'"),
        (
            {"order_by": "id", "table": "t", "dsn": "hush hush"},
            "option 'dsn' is not a connection string",
        ),
    ],
)
def test_options_that_cannot_work_are_sentences_without_the_password(
    more: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build_postgres_source({"dsn": "postgresql://u:hush-hush@db/results", **more})
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)
