"""Requests to stop a driver: each is a member of a role, present as long as the requesting process
lives."""

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
