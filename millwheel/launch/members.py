"""The data that members of a run register: workers when they join, and a process that asks its
driver to stop. A member is present as long as its process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from millwheel.core.model.damage import DAMAGE

STOP = "stop"
"""The role of requests to stop."""


class StopRequest(msgspec.Struct, frozen=True):
    """The life of the driver to stop. A driver that starts a moment later is not affected."""

    instance: str
    driver_pid: int


def on_stop(
    own_request: StopRequest, stop: Callable[[], None]
) -> Callable[[Mapping[str, bytes]], None]:
    """The handler of changes of the role: calls ``stop`` if a member names this driver."""

    def changed(members: Mapping[str, bytes]) -> None:
        for data in members.values():
            with suppress(*DAMAGE):
                if msgspec.json.decode(data, type=StopRequest) == own_request:
                    stop()

    return changed


class JoinedWorker(msgspec.Struct, frozen=True):
    """A worker's data from joining: its slot, its process id on its machine, the address of its
    ``/metrics``, and the facts of its machine (see
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
