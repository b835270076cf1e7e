"""How a driver learns of a request to stop: a member of a role, present for as long as the asking process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from millwheel.core.model.damage import DAMAGE

STOP = "stop"
"""The role of those who ask."""


class StopRequest(msgspec.Struct, frozen=True):
    """Which life of which driver is meant: one that is started a moment later is not."""

    instance: str
    driver_pid: int


def on_stop(mine: StopRequest, stop: Callable[[], None]) -> Callable[[Mapping[str, bytes]], None]:
    """What to do when the members of the role change: call ``stop`` if one of them means us."""

    def changed(members: Mapping[str, bytes]) -> None:
        for data in members.values():
            with suppress(*DAMAGE):
                if msgspec.json.decode(data, type=StopRequest) == mine:
                    stop()

    return changed
