from __future__ import annotations

from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.workers.loop.standing_by import StandingBy

HERE = tile(1)[0]


class Followers:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def follow(self, entry: ShardEntry) -> None:
        self.calls.append(("follow", entry.shard))

    def drop(self, shard: str) -> None:
        self.calls.append(("drop", shard))


def entry(owner: str, standby: str) -> ShardEntry:
    return ShardEntry("s-0", HERE, owner, 1, standby=standby)


def looked(*entries: ShardEntry) -> list[tuple[str, str]]:
    followers = Followers()
    standing = StandingBy("me", followers)
    for each in entries:
        standing.look([each], [])
    return followers.calls


def test_whoever_is_named_follows_and_no_longer_when_another_one_is_named() -> None:
    assert looked(entry("w1", "me"), entry("w1", "w2")) == [("follow", "s-0"), ("drop", "s-0")]
    assert looked(entry("w1", "w2")) == []


def test_what_was_followed_is_left_to_the_recovery_of_the_shard_that_is_ours_now() -> None:
    assert looked(entry("w1", "me"), entry("me", "")) == [("follow", "s-0")]


def test_a_shard_without_an_owner_is_still_followed() -> None:
    """Its owner has just died: whoever follows it is about to get it."""
    assert looked(entry("w1", "me"), entry("", "")) == [("follow", "s-0")]


def test_nobody_follows_himself() -> None:
    assert looked(entry("me", "me"), entry("", "me")) == []


def test_a_shard_that_is_no_more_is_dropped() -> None:
    followers = Followers()
    standing = StandingBy("me", followers)
    standing.look([entry("w1", "me")], [])
    standing.look([], [entry("", "")])
    standing.look([], [entry("", "")])
    assert followers.calls == [("follow", "s-0"), ("drop", "s-0")]
