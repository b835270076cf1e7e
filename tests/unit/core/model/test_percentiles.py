"""What a share of the shards is, and at which nodes it matters."""

from __future__ import annotations

import pytest

from millwheel.core.model.percentiles import needed, share_name, shares_by_node


@pytest.mark.parametrize(
    ("share", "shards", "count"),
    [
        (1.0, 7, 7),
        (0.95, 20, 19),
        (0.95, 21, 20),
        (0.5, 3, 2),
        (0.1, 10, 1),
        (0.01, 4, 1),
        (0.3, 10, 3),
        (0.9, 1, 1),
    ],
)
def test_a_share_is_rounded_up_to_whole_shards(share: float, shards: int, count: int) -> None:
    assert needed(share, shards) == count


def test_no_node_has_the_name_of_a_percentile_watermark() -> None:
    assert share_name("source.hits", 0.95) == "source.hits@0.95"


def test_a_share_matters_where_it_is_used_and_at_everything_upstream() -> None:
    feeders = {
        "source": (),
        "other": (),
        "map": ("source",),
        "fast": ("map",),
        "slow": ("map", "other"),
    }
    assert shares_by_node(feeders, {"fast": (0.5,), "slow": (0.9,), "map": ()}) == {
        "source": (0.5, 0.9),
        "map": (0.5, 0.9),
        "fast": (0.5,),
        "slow": (0.9,),
        "other": (0.9,),
    }


def test_a_circle_is_walked_once() -> None:
    assert shares_by_node({"a": ("b",), "b": ("a",)}, {"a": (0.5,)}) == {"a": (0.5,), "b": (0.5,)}
