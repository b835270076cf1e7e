"""Names of nodes, shards and channels: what is built is taken apart again."""

from __future__ import annotations

import pytest

from millwheel.core.model import names


@pytest.mark.parametrize("node", ["counts", "source.clicks", "two-parts", "ends-7", "-"])
def test_a_shard_is_taken_apart_into_what_it_was_made_of(node: str) -> None:
    shard = names.shard_name(node, 12)
    assert names.shard_parts(shard) == (node, 12)
    assert names.producer_of(names.shard_channel(shard)) == node


@pytest.mark.parametrize(
    "text", ["", "counts", "-3", "counts-", "counts-x", "counts-1x", "counts-1 "]
)
def test_other_texts_name_no_shard(text: str) -> None:
    assert names.shard_parts(text) is None


def test_channels_of_partitions_and_letters_have_no_producer_whatever_they_end_with() -> None:
    assert names.producer_of(names.partition_channel("source.clicks", "part-3")) is None
    assert names.producer_of(names.replay_channel("request-7")) is None


def test_names_look_as_they_always_did_because_they_are_stored() -> None:
    assert names.shard_name("counts", 0) == "counts-0"
    assert names.shard_channel(names.shard_name("counts", 0)) == "counts-0"
    assert names.partition_channel("source.clicks", "a/b.jsonl") == "source.clicks/a/b.jsonl"
    assert names.replay_channel("r") == "replay/r"


def test_productions_for_some_consumers_name_the_others_and_the_stream() -> None:
    whole, some = "clicks", names.without_nodes("clicks", ["some", "source.x"])
    assert names.left_out(whole) == names.left_out(names.rest_of(whole)) == frozenset()
    for name in (some, names.rest_of(some)):
        assert names.left_out(name) == {"some", "source.x"}
        assert names.whole_of(name) == whole
    assert [names.is_rest(name) for name in (some, names.rest_of(some))] == [False, True]
