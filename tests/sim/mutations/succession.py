"""Deliberate mistakes in the master."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millwheel.control.master.membership import Membership
from millwheel.control.master.tables import succession
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20)
def owner_before_seal() -> Context:
    """Shards of a dead worker are given away before its journal is sealed."""
    right = succession._next

    def wrong(node: str, entry: Any, now: Any, census: Any) -> Any:
        dead = {name: 0 if end is None else end for name, end in now.dead.items()}
        return right(node, entry, replace(now, dead=dead), census)

    return replaced(succession, "_next", wrong)


@mistake(within=60, first=4)
def lineage_cut_too_early() -> Context:
    """The newest ancestor is forgotten as soon as it has published any snapshot."""
    right = succession._pruned

    def wrong(entry: Any, now: Any) -> Any:
        tokens = {shard: token + 1 for shard, token in now.manifest_tokens.items()}
        return right(entry, replace(now, manifest_tokens=tokens))

    return replaced(succession, "_pruned", wrong)


@mistake(within=60, first=6)
def journal_collected_while_needed() -> Context:
    """The journal of the dead goes although a lineage names it."""
    right = Membership.collections
    return replaced(Membership, "collections", lambda self, mentioned: right(self, ()))
