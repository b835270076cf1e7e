"""Finds the processes of workers that were declared dead but still run (paused, hung), so that they
can be killed.

A worker ends by itself once it learns that it is no longer a member. A worker that cannot learn
this would keep its slot for ever, because the supervisor only checks that the process exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

GRACE_S = 10.0
"""The time that a worker gets to end by itself once it is no longer a member."""


class JoinedWorker(msgspec.Struct, frozen=True):
    """A worker's data from joining: its slot, its process id on its machine, the address of its
    ``/metrics``, and what its machine states (see
    :class:`millwheel.engine.workers.machine.MachineFacts`)."""

    slot: int
    pid: int
    metrics: str = ""
    weight: int = 1
    host: str = ""
    rack: str = ""


def read_members(datas: Mapping[str, bytes]) -> dict[str, JoinedWorker]:
    """The members by incarnation, from their data in ZooKeeper."""
    return {name: msgspec.json.decode(data, type=JoinedWorker) for name, data in datas.items()}


@dataclass(slots=True)
class Stragglers:
    """How long each worker has been gone. Pure: the time is an argument."""

    present: frozenset[JoinedWorker] = frozenset()
    over: set[JoinedWorker] = field(default_factory=set)
    gone_since_s: dict[JoinedWorker, float] = field(default_factory=dict)

    def ended(self, slot: int) -> None:
        """The process of a slot has ended: stop watching for workers of this slot."""
        self.over.update(member for member in self.present if member.slot == slot)
        self.gone_since_s = {
            member: since for member, since in self.gone_since_s.items() if member.slot != slot
        }

    def step(self, members: frozenset[JoinedWorker], now_s: float) -> list[JoinedWorker]:
        """Take the present members. Returns, once each, the processes that should have ended by
        now."""
        gone = self.present - members
        self.gone_since_s.update(dict.fromkeys(gone - self.over, now_s))
        self.over -= gone
        self.present = members
        due = [
            member for member, since_s in self.gone_since_s.items() if now_s - since_s >= GRACE_S
        ]
        for member in due:
            del self.gone_since_s[member]
        return due
