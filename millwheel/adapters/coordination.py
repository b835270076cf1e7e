"""The coordination port, by address: ZooKeeper, or the embedded coordinator of a run on one
machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millwheel.adapters.coordinator import LOCAL, LocalCoordination
from millwheel.adapters.grpc.security import load_security

if TYPE_CHECKING:
    from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination


def open_coordination(
    address: str,
    pipeline: str,
    session_timeout_s: float = 3.0,
    lost_after_s: float | None = None,
    connect_timeout_s: float = 10.0,
    security: str = "",
) -> LocalCoordination | ZooKeeperCoordination:
    """A session for ``pipeline``. ``address`` is ``local:PATH`` or ``host:port,host:port/chroot``.

    ``security`` is the folder with our token and our ZooKeeper user ("": none). The times are those
    of :class:`ZooKeeperCoordination`.

    Raises SetupError if nothing answers there.
    """
    if address.startswith(LOCAL):
        credentials = load_security(security)
        token = credentials.token if credentials else ""
        return LocalCoordination(address, session_timeout_s, lost_after_s, connect_timeout_s, token)
    # Imported only where it is used, because the client library takes a tenth of a second to load.
    from millwheel.adapters.zookeeper.coordination import ZooKeeperCoordination
    from millwheel.adapters.zookeeper.guard import load_guard

    guard = load_guard(security)
    return ZooKeeperCoordination(
        address, pipeline, session_timeout_s, lost_after_s, connect_timeout_s, guard
    )
