"""Watches over ZooKeeper: each change is told once, with what stands there now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millwheel.adapters.zookeeper.watch import Candidate, Tables, WatchedMembers
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import UnavailableError


class Session:
    """Nodes by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}

    def children(self, folder: str, watch: Any = None) -> list[str]:
        return [
            path.removeprefix(f"{folder}/") for path in self.nodes if path.startswith(f"{folder}/")
        ]

    def read(self, path: str, watch: Any = None) -> Any:
        found = self.nodes.get(path)
        return None if found is None else SimpleNamespace(data=found[0], version=found[1])

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> bool:
        return self.nodes.setdefault(path, (data, 0)) == (data, 0)

    def create_in_sequence(self, folder: str, mark: str) -> str:
        name = f"{mark}-{len(self.nodes):010d}"
        self.nodes[f"{folder}/{name}"] = (b"", 0)
        return name


class Loop:
    """Refreshes what was poked, when the test says so."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.dropped: list[Any] = []

    def add(self, subscription: Any) -> None:
        self.due.append(subscription)

    poke = add

    def drop(self, subscription: Any) -> None:
        self.dropped.append(subscription)

    def pump(self) -> None:
        while self.due:
            self.due.pop(0).refresh()


def test_members_are_told_when_they_differ_from_what_was_told_last() -> None:
    session, told = Session(), list[Any]()
    watched = WatchedMembers(cast("Any", session), cast("Any", Loop()), "/w", told.append)
    watched.refresh()
    session.nodes["/w/a"] = (b"1", 0)
    watched.refresh()
    watched.refresh()
    del session.nodes["/w/a"]
    watched.refresh()
    assert told == [{}, {"a": b"1"}, {}]


def test_a_table_is_told_in_each_new_version_once_and_never_in_an_older_one() -> None:
    session, loop, told = Session(), Loop(), list[int]()
    tables = Tables(
        cast("Any", session), cast("Any", loop), "/t", lambda table: told.append(table.version)
    )
    data = RangeTable("n", (ShardEntry("n-0", tile(1)[0], "w", 1),), 0).encode()  # type: ignore[arg-type]
    session.nodes["/t/n"] = (data, 3)
    tables.refresh()
    loop.pump()
    own = next(iter(cast("Any", tables)._tables.values()))
    for version in (3, 2, 5):
        session.nodes["/t/n"] = (data, version)
        own.refresh()
    assert told == [3, 5]
    session.nodes.clear()
    tables.refresh()
    assert loop.dropped == [own]


def test_one_candidate_leads_and_the_next_when_it_is_gone() -> None:
    session, loop, won = Session(), Loop(), list[str]()

    def candidate(name: str) -> Candidate:
        leader = (f"/leader/{name}", b"")
        return Candidate(
            cast("Any", session), cast("Any", loop), "/line", leader, lambda: won.append(name)
        )

    one, other = candidate("one"), candidate("other")
    for each in (one, other, one, other, one):
        each.refresh()
        loop.pump()
    assert won == ["one"]
    line = sorted(
        (path for path in session.nodes if path.startswith("/line/")), key=lambda path: path[-10:]
    )
    del session.nodes[line[0]]
    other.refresh()
    assert won == ["one", "other"]


def test_a_place_that_still_belongs_to_somebody_is_waited_for() -> None:
    session, loop = Session(), Loop()
    session.nodes["/leader/me"] = (b"other", 0)
    made = Candidate(
        cast("Any", session), cast("Any", loop), "/line", ("/leader/me", b"mine"), lambda: None
    )
    made.refresh()
    with pytest.raises(UnavailableError, match="still belongs to another member"):
        made.refresh()
