"""The page as a server: ``millwheel ui``, and beside a run that was started with ``--ui``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from millwheel.adapters.front import limits
from millwheel.adapters.front.browsers import names_of
from millwheel.adapters.grpc.certificates import renewing
from millwheel.adapters.grpc.security import check_listen, is_loopback, load_security
from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.control.roots.attach import find_root
from millwheel.control.roots.root import read_run
from millwheel.errors import SetupError
from millwheel.launch.services import PAGE_NEEDS, page_listener

TOKEN_VARIABLE = "MILLWHEEL_UI_TOKEN"  # the name of the variable
"""The token that allows changes; ``--writable`` generates one if none is set."""
_ROLE = "worker"  # its certificate is for servers and clients


@dataclass(frozen=True, slots=True)
class UiSettings:
    """``root`` as the user wrote it. ``writable``: requests with the token can replay dead letters.
    ``hosts`` are further host names of this server for browsers."""

    root: str
    host: str = LOOPBACK
    port: int = 0
    security: str = ""
    writable: bool = False
    hosts: Sequence[str] = ()


def serve(
    settings: UiSettings, orders: Callable[[str], ReplayOrders], announce: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C. ``orders`` opens the replays of a root's address. ``announce`` is called
    with the address; the token follows ``#``, a part that browsers never send. Raises SetupError
    when the page cannot be served."""
    try:
        from millwheel.adapters.front.http_server import FrontedServer
        from millwheel.tools.ui.app import PROBES, PageSettings, RunPage
    except ImportError as ex:
        raise SetupError(PAGE_NEEDS) from ex
    from millwheel.tools.ui.follower import FollowedPage
    from millwheel.tools.ui.panels import Panels

    root = find_root(settings.root)
    run = read_run(root)
    if run is None:
        raise SetupError(f"{root} is not the root of a run: give the --root of its `millwheel run`")
    folder = settings.security or run.security
    credentials = load_security(folder, _ROLE)
    check_listen(f"{settings.host}:{settings.port}", credentials)
    tls = None if credentials is None or is_loopback(settings.host) else credentials.tls
    token = os.environ.get(TOKEN_VARIABLE, "")
    if settings.writable and not token:
        token = secrets.token_urlsafe(24)
    followed = FollowedPage(root)
    followed.start()
    hosts = () if tls else names_of(settings.host, settings.hosts)
    address = settings.root if in_bucket(settings.root) else str(root)
    panels = Panels(address, root, orders(address))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    with page_listener(settings.host, settings.port) as listener:
        address = f"{host}:{listener.getsockname()[1]}"
        admits = partial(credentials.admits, address=address) if credentials else None
        page = RunPage(followed, panels, PageSettings(admits, token, hosts))
        credential = token or (credentials.proof(address) if credentials else "")
        announce(
            f"{'https' if tls else 'http'}://{address}/"
            + (f"#token={credential}" if credential else "")
        )
        options = _tls(folder) if tls else {}
        server = FrontedServer(
            page.app(),
            listener,
            limits.page(),
            PROBES,
            renewing(tls),
            timeout_graceful_shutdown=1,
            **options,
        )
        server.serve_on_this_thread()
    followed.stop()


def _tls(folder: str) -> dict[str, Any]:
    own = _ROLE if (Path(folder) / f"{_ROLE}.pem").exists() else "process"
    return {
        "ssl_certfile": str(Path(folder) / f"{own}.pem"),
        "ssl_keyfile": str(Path(folder) / f"{own}.key"),
    }
