"""Who has a key, and who else could answer."""

from __future__ import annotations

import json
from dataclasses import replace

from millwheel.core.model.names import WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.slices.slots import slot_hash
from millwheel.tools.gateway.owners import Owners

ENTRIES = tuple(
    ShardEntry(f"clicks-{n}", piece, WorkerName(f"w{n}"), 1) for n, piece in enumerate(tile(4))
)
MEMBERS = {f"w{n}": json.dumps({"queries": f"h:{n}"}).encode() for n in range(4)}


def test_the_owner_of_a_key_is_the_one_of_its_range() -> None:
    owners = Owners(frozenset({"clicks"}))
    assert "--query-port" in owners.ready()
    owners.workers({**MEMBERS, "w9": b"{}"})
    assert "range tables" in owners.ready()
    assert owners.owner("clicks", 1) == "h:0"  # any worker redirects
    owners.table(RangeTable("clicks", tuple(reversed(ENTRIES)), 3))
    assert owners.ready() == ""
    for key in range(200):
        (entry,) = [each for each in ENTRIES if each.range.lo <= slot_hash(key) < each.range.hi]
        assert owners.owner("clicks", key) == f"h:{entry.owner[1:]}"
    assert owners.addresses == {"h:0", "h:1", "h:2", "h:3"}


def test_a_standby_could_answer_if_it_lives() -> None:
    owners = Owners(frozenset({"clicks"}))
    owners.table(
        RangeTable("clicks", tuple(replace(each, standby=WorkerName("w2")) for each in ENTRIES), 3)
    )
    assert owners.others("clicks", 1) == ()
    assert owners.owner("clicks", 1) == ""
    owners.workers(MEMBERS)
    assert owners.others("clicks", 1) == ("h:2",)
    assert owners.others("other", 1) == ()


def test_one_other_worker_could_open_the_snapshot_of_a_shard() -> None:
    owners = Owners(frozenset({"clicks"}))
    assert owners.snapshot_readers("clicks", 1) == ()
    owners.workers(MEMBERS)
    owners.table(
        RangeTable("clicks", tuple(replace(each, standby=WorkerName("w2")) for each in ENTRIES), 3)
    )
    for key in range(20):
        (chosen,) = owners.snapshot_readers("clicks", key)
        assert chosen not in (owners.owner("clicks", key), "h:2")
    owners.workers({"w2": MEMBERS["w2"]})
    assert owners.snapshot_readers("clicks", 1) == ()
