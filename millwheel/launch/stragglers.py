"""Workers that have been declared dead but are still processes (paused, hung): they are found here, and then killed.

A worker that is alive ends by itself once it learns that it is no member any more. One that cannot learn it would
keep its slot for ever, because its supervisor only sees that the process is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

GRACE_S = 10.0
"""How long a worker that is no member any more has to end by itself."""


class JoinedWorker(msgspec.Struct, frozen=True):
    """A worker as it joined: its slot, its process on the machine where it runs, and where it serves ``/metrics``."""

    slot: int
    pid: int
    metrics: str = ""


def read_members(datas: Mapping[str, bytes]) -> dict[str, JoinedWorker]:
    """Members by incarnation, as their data in ZooKeeper says."""
    return {name: msgspec.json.decode(data, type=JoinedWorker) for name, data in datas.items()}


@dataclass(slots=True)
class Stragglers:
    """How long each worker has been gone. Pure: the time is an argument."""

    present: frozenset[JoinedWorker] = frozenset()
    over: set[JoinedWorker] = field(default_factory=set)
    gone_since_s: dict[JoinedWorker, float] = field(default_factory=dict)

    def ended(self, slot: int) -> None:
        """The process of a slot is known to have ended; whoever was a member from there needs no attention."""
        self.over.update(member for member in self.present if member.slot == slot)
        self.gone_since_s = {member: since for member, since in self.gone_since_s.items() if member.slot != slot}

    def step(self, members: frozenset[JoinedWorker], now_s: float) -> list[JoinedWorker]:
        """Take the present members. Returns the processes that should have ended by now, each once."""
        gone = self.present - members
        self.gone_since_s.update(dict.fromkeys(gone - self.over, now_s))
        self.over -= gone
        self.present = members
        due = [member for member, since_s in self.gone_since_s.items() if now_s - since_s >= GRACE_S]
        for member in due:
            del self.gone_since_s[member]
        return due
