"""Shards are opened, begin, leave and are dropped as the range tables say."""

from __future__ import annotations

from typing import Any, cast

import pytest

from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.delivery.routing import TableRouter
from millwheel.engine.workers.effects import ForgetReports, Gathering, Recover, Release
from millwheel.engine.workers.loop.ranges import LONGEST_US, Beginning, Ranges, StandingBy
from millwheel.engine.workers.loop.shard_handle import Life, LifeChange, Served
from millwheel.engine.workers.loop.table_entries import TableEntries
from millwheel.errors import FencedError
from tests.unit.engine.workers.loop.stand import ME, live, table


class Snapshots:
    """Says of every shard that a snapshot holds all of it, or of none."""

    def __init__(self) -> None:
        self.covered = False

    def covers(self, shard: Any) -> bool:
        return self.covered

    def forget(self, name: str) -> None:
        pass


class Stand:
    """A worker's ranges, and what they want done."""

    def __init__(self, **served: Served) -> None:
        self.out = Gathering()
        self.served = {name.replace("_", "-"): each for name, each in served.items()}
        self.snapshots = Snapshots()
        self.ranges = Ranges(
            cast("Any", ME),
            self.served,
            TableEntries(),
            cast("Any", self.snapshots),
            self.out,
            TableRouter(),
        )

    def table(
        self, *owners: tuple[str, int], version: int, opens: bool = True, **more: Any
    ) -> None:
        self.ranges.table(ev.TableChanged(table("work", *owners, version=version, **more)), opens)

    def asked(self, kind: type) -> list[Any]:
        return [effect for effect in self.out.others if isinstance(effect, kind)]


class Store:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_shard_that_is_ours_is_opened_once_for_each_token() -> None:
    stand = Stand()
    stand.table((ME, 1), ("w9", 1), version=1)
    stand.table((ME, 1), ("w9", 1), version=2)
    stand.table((ME, 2), ("w9", 1), version=3)
    assert [(effect.entry.shard, effect.entry.token) for effect in stand.asked(Recover)] == [
        ("work-0", 1),
        ("work-0", 2),
    ]


def test_a_worker_that_stops_opens_nothing() -> None:
    stand = Stand()
    stand.table((ME, 1), version=1, opens=False)
    assert stand.asked(Recover) == []


def test_a_store_that_was_opened_under_an_older_token_is_closed_and_not_served() -> None:
    stand = Stand()
    stand.table((ME, 1), version=1)
    [before] = stand.asked(Recover)
    stand.table((ME, 2), version=2)
    store = Store()
    came = ev.ShardRecovered(before.entry, NodeName("work"), cast("Any", store))
    assert stand.ranges.recovered(came, lambda event: pytest.fail("it is served")) is None
    assert store.closed


def test_a_shard_that_is_given_to_others_without_a_release_means_that_we_are_dead() -> None:
    _, served = live()
    stand = Stand(work_0=served)
    with pytest.raises(FencedError, match="work-0 belongs to w9 under token 2, taken from w0"):
        stand.table(("w9", 2), version=1)


def test_a_shard_that_left_is_dropped_and_nothing_is_said_of_it_any_more() -> None:
    _, served = live()
    stand = Stand(work_0=served)
    served.life = Life.RELEASED
    stand.table(("w9", 2), version=1)
    assert stand.served == {}
    assert [effect.shard for effect in stand.asked(ForgetReports)] == ["work-0"]


def test_the_same_owner_under_a_higher_token_opens_the_shard_anew() -> None:
    _, served = live(token=1)
    stand = Stand(work_0=served)
    stand.table((ME, 2), version=1)
    assert stand.served == {}
    assert [effect.entry.token for effect in stand.asked(Recover)] == [2]


@pytest.mark.parametrize(("token", "believed"), [(1, False), (2, True), (3, False)])
def test_the_injector_knows_our_token_or_that_of_another_owner(token: int, believed: bool) -> None:
    """A shard that begins under the token of another owner reports beside that owner."""
    _, served = live(token=2)
    served.life = Life.OPENED
    stand = Stand(work_0=served)
    assert (
        stand.ranges.token_known(ev.TokenKnown(cast("Any", "work-0"), cast("Any", token)))
        is believed
    )
    assert served.life is (Life.KNOWN if believed else Life.OPENED)
    stand.ranges.go_live(0)
    assert served.works is believed


def test_a_leaving_shard_is_released_once_when_all_of_it_is_durable_and_in_a_snapshot() -> None:
    """Before, the next owner would open without its last commit, and give its number to another
    one."""
    bench, served = live()
    stand = Stand(work_0=served)
    served.life = Life.LEAVING
    bench.deliver(("a", 1, 5))
    bench.run()
    stand.snapshots.covered = True
    stand.ranges.release(stand.served.values())
    assert stand.asked(Release) == [], "its commit is not durable"
    bench.settle()
    stand.snapshots.covered = False
    stand.ranges.release(stand.served.values())
    assert stand.asked(Release) == [], "no snapshot has it"
    stand.snapshots.covered = True
    stand.ranges.release(stand.served.values())
    stand.ranges.release(stand.served.values())
    assert [
        (effect.shard, effect.token, effect.last_commit) for effect in stand.asked(Release)
    ] == [("work-0", 1, 1)]
    stand.ranges.master_attached()
    stand.ranges.release(stand.served.values())
    assert len(stand.asked(Release)) == 2, "a new master was told nothing"


def test_who_was_a_member_and_is_none_was_declared_dead() -> None:
    stand = Stand()
    stand.ranges.workers(ev.WorkersChanged({}))  # not joined yet
    stand.ranges.workers(ev.WorkersChanged({ME: "here"}))
    with pytest.raises(FencedError, match="not a member any more"):
        stand.ranges.workers(ev.WorkersChanged({"w9": "there"}))


def test_a_lane_that_waited_for_a_shard_is_sent_on_when_its_entry_changes() -> None:
    _, served = live()
    stand = Stand(work_0=served)
    served.stalled = {("work-0", "sink.out-0"): 9, ("work-0", "other-0"): 9}
    stand.ranges.table(ev.TableChanged(table("sink.out", ("w9", 1), version=1)), True)
    assert list(served.stalled) == [("work-0", "other-0")]
    assert served.changed


SOURCES = frozenset({"source.hits"})


class Shard:
    """The watermark that it reports is ``at``; what it reads is read up to ``read``, if something
    is chained behind it."""

    def __init__(self, at: int, read: int | None = None) -> None:
        self.at, self.read = at, read
        self.watermark = self.operator = self

    def held(self, now_us: int) -> Hold:
        return Hold(self.at)

    def hold(self, now_us: int) -> Hold:
        return Hold(self.at if self.read is None else self.read)

    @property
    def has_chain(self) -> bool:
        return self.read is not None


def served(node: str, known: bool = True, at: int = 0) -> Served:
    roots = frozenset[str]() if node.startswith("source.") else SOURCES
    return Served(cast("Any", Shard(at)), node, roots, life=Life.KNOWN if known else Life.OPENED)


def test_a_shard_begins_when_its_token_is_known() -> None:
    known, unknown = served("counts"), served("counts", known=False)
    assert Beginning().due([known, unknown], False, 5) == [known]


def test_what_has_begun_does_not_begin_again() -> None:
    one = served("counts")
    one.change(LifeChange.BEGINS)
    assert Beginning().due([one], False, 5) == []


def test_a_source_waits_for_what_is_being_opened_here_and_the_others_do_not() -> None:
    source, counts = served("source.hits"), served("counts")
    beginning = Beginning()
    assert beginning.due([source, counts], True, 5) == [counts]
    assert beginning.until_us == 5 + LONGEST_US
    assert beginning.due([source, counts], False, 7) == [source, counts]
    assert beginning.until_us == MAX_TIME


def test_a_source_waits_for_the_token_of_another_node_but_not_for_that_of_another_source() -> None:
    source, other, counts = (
        served("source.hits"),
        served("source.hits", known=False),
        served("counts", known=False),
    )
    assert Beginning().due([source, counts], False, 5) == []
    assert Beginning().due([source, other], False, 5) == [source]


def test_a_source_waits_only_so_long_and_its_time_is_not_put_off() -> None:
    source = served("source.hits")
    beginning = Beginning()
    assert beginning.due([source], True, 5) == []
    assert beginning.due([source], True, 4 + LONGEST_US) == []
    assert beginning.due([source], True, 5 + LONGEST_US) == [source]


def test_nobody_is_waited_for_while_no_source_could_begin() -> None:
    beginning = Beginning()
    assert beginning.due([served("source.hits", known=False)], True, 5) == []
    assert beginning.until_us == MAX_TIME


def test_the_end_of_a_source_is_news_until_it_is_told() -> None:
    source = served("source.hits", at=MAX_TIME)
    assert source.has_ended(5)
    source.last.state = (MAX_TIME, 3)
    assert not source.has_ended(5)
    assert not served("source.hits", at=7).has_ended(5)


def test_what_is_read_is_news_while_results_of_a_chain_hold_the_watermark() -> None:
    def reads(read: int | None) -> Served:
        return Served(cast("Any", Shard(3, read)), "source.hits", frozenset(), life=Life.KNOWN)

    source = reads(MAX_TIME)
    assert source.has_ended(5)
    source.last.read = True
    assert not source.has_ended(5)
    assert not reads(7).has_ended(5)
    assert not reads(None).has_ended(5)


def test_the_end_of_another_node_is_news_once_the_sources_before_it_have_ended() -> None:
    counts = served("counts", at=MAX_TIME)
    assert not counts.has_ended(5)
    counts.ended = True
    assert counts.has_ended(5)
    counts.last.state = (MAX_TIME, 3)
    assert not counts.has_ended(5)


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
