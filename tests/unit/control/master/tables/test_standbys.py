from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import WriteRangeTable
from millwheel.control.master.events import JournalSealed, WorkerUnreachable
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.control.master.tables.spares import seated
from millwheel.control.master.tables.standbys import chosen, followers
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from tests.unit.control.master.test_state import SECOND, Tick, members, of, owners, stored
from tests.unit.control.master.test_state import TablesLoaded as Loaded

NAMES = [f"w{number}" for number in range(5)]


def table(*held: tuple[str, str]) -> RangeTable:
    """A table of shards by (owner, standby)."""
    pieces = zip(tile(len(held)), held, strict=True)
    entries = (
        ShardEntry(f"t-{n}", piece, o, 1, standby=s) for n, (piece, (o, s)) in enumerate(pieces)
    )
    return RangeTable("t", tuple(entries))


def names(found: dict[tuple[str, str], str]) -> list[str]:
    return [found[index] for index in sorted(found)]


def test_a_spare_follows_all_and_one_that_serves_is_replaced_by_it() -> None:
    hosts = dict.fromkeys(["w1", "w2", "s"], "h")
    assert names(chosen([table(("w1", "w2"), ("w2", ""))], hosts, ["w1", "w2"])) == ["s", "s"]


def test_of_several_spares_one_follows_all_shards_of_an_owner_on_another_host() -> None:
    hosts = {"w1": "h1", "w2": "h2", "s1": "h1", "s2": "h2"}
    found = chosen([table(("w1", "s1"), ("w1", ""), ("w2", ""), ("w2", "s1"))], hosts, ["w1", "w2"])
    assert names(found) == ["s2", "s2", "s1", "s1"]


def test_one_that_serves_on_another_host_is_preferred_to_a_spare_beside_the_owner() -> None:
    hosts = {"w1": "h1", "w2": "h2", "s": "h1"}
    assert names(chosen([table(("w1", "s"), ("w1", "s"), ("w2", "w1"))], hosts, ["w1", "w2"])) == [
        "w2",
        "w2",
        "s",
    ]


def test_owners_that_die_together_are_followed_by_different_spares() -> None:
    hosts = {"w1": "h1", "w2": "h1", "w3": "h2", "s1": "h2", "s2": "h3"}
    found = chosen([table(("w1", "s1"), ("w2", "s1"), ("w3", ""))], hosts, ["w1", "w2", "w3"])
    assert names(found) == ["s1", "s2", "s2"]


def test_without_spares_those_that_serve_follow_each_other_evenly() -> None:
    hosts = dict.fromkeys(["w1", "w2", "w3"], "h")
    found = chosen([table(*[("w1", "")] * 4, ("w2", ""))], hosts, hosts)
    assert Counter(names(found)[:4]) == {"w2": 2, "w3": 2}
    assert names(found)[4] in ("w1", "w3")


def test_nobody_follows_when_nobody_else_is_there() -> None:
    assert names(chosen([table(("w1", "w2"))], {"w1": "h"}, ["w1"])) == [""]


def test_shards_that_nobody_owns_are_left_alone() -> None:
    assert chosen([table(("", "w1"))], dict.fromkeys(NAMES, "h"), NAMES) == {}


@given(
    held=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["", *NAMES, "gone"])),
        min_size=1,
        max_size=8,
    ),
    hosts=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["h1", "h2"]), min_size=1),
    seats=st.integers(1, 5),
)
def test_nobody_follows_itself_or_is_gone_and_a_second_look_changes_nothing(
    held: list[tuple[str, str]], hosts: dict[str, str], seats: int
) -> None:
    serving = set(sorted(hosts)[:seats])
    given_ = table(
        *((owner if owner in serving else min(serving), standby) for owner, standby in held)
    )
    found = chosen([given_], hosts, serving)
    entries = [replace(entry, standby=found["t", entry.shard]) for entry in given_.shards]
    for entry in entries:
        assert entry.standby != entry.owner
        assert entry.standby in hosts or len(hosts) == 1
        beside = hosts.get(entry.standby) == hosts[entry.owner]
        assert not beside or set(hosts.values()) == {hosts[entry.owner]}, (
            "it would die with the owner's host"
        )
    assert chosen([replace(given_, shards=tuple(entries))], hosts, serving) == found


def test_the_seat_of_the_dead_goes_to_whoever_followed_it() -> None:
    entries = table(("w1", "s2"), ("w1", "s2"), ("w2", "s1")).shards
    following = followers(entries, ["w1"])
    assert following == {"s2": 2}
    assert seated(dict.fromkeys(["w2", "s1", "s2"], "h"), {"w2": 1}, 2, ["h"], following) == {
        "w2",
        "s2",
    }


def followed() -> tuple[MasterState, RangeTable]:
    """A master of three workers; the shards are served and followed."""
    nodes = (NodeDemand("traffic", 6, standby=True),)
    state = MasterState(MasterConfig(nodes=nodes, expected_workers=3))
    state.handle(Tick(now_us=0))
    state.handle(Loaded(tables=()))
    event = stored(state.handle(members("w1", "w2", "w3")))
    state.handle(event)
    # not before membership has settled
    assert of(state.handle(Tick(now_us=SECOND)), WriteRangeTable) == []
    event = stored(state.handle(Tick(now_us=4 * SECOND)))
    assert state.handle(event) == []
    return state, event.table


def test_each_shard_gets_a_standby_and_that_is_written_once() -> None:
    state, written = followed()
    assert all(entry.standby not in ("", entry.owner) for entry in written.shards)
    assert of(state.handle(Tick(now_us=9 * SECOND)), WriteRangeTable) == []


def test_what_a_dead_worker_had_goes_to_its_standbys_and_gets_new_ones_later() -> None:
    state, before = followed()
    state.handle(WorkerUnreachable(incarnation="w1", reason="refused"))
    event = stored(state.handle(JournalSealed(incarnation="w1", end=7)))
    after = event.table
    expected = [entry.standby if entry.owner == "w1" else entry.owner for entry in before.shards]
    assert owners(after) == expected
    assert all(
        now.standby == ""
        for was, now in zip(before.shards, after.shards, strict=True)
        if was.owner == "w1"
    )
    state.handle(event)
    state.handle(members("w2", "w3"))
    again = stored(state.handle(Tick(now_us=20 * SECOND))).table
    assert all({entry.owner, entry.standby} == {"w2", "w3"} for entry in again.shards)


def test_a_new_master_goes_on_with_the_standbys_that_the_table_names() -> None:
    _, table_ = followed()
    nodes = (NodeDemand("traffic", 6, standby=True),)
    state = MasterState(MasterConfig(nodes=nodes, expected_workers=3))
    state.handle(Loaded(tables=(table_,)))
    state.handle(members("w2", "w3"))
    event = stored(state.handle(JournalSealed(incarnation="w1", end=7)))
    assert owners(event.table) == [e.standby if e.owner == "w1" else e.owner for e in table_.shards]


def test_a_standby_is_in_the_bytes_of_a_table_and_an_owner_of_its_own_does_without() -> None:
    _, table_ = followed()
    assert RangeTable.decode(table_.encode(), table_.version) == table_
    assert table_.shards[0].assigned("w9").standby == ""
