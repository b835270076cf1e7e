"""``millwheel serve``: the gateway as a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from millwheel.adapters.front import limits
from millwheel.adapters.front.browsers import names_of
from millwheel.adapters.front.listener import listening
from millwheel.adapters.grpc.certificates import renewing
from millwheel.adapters.grpc.security import check_listen, is_loopback, load_security
from millwheel.control.roots.root import read_run
from millwheel.engine.queries.link import secured_links
from millwheel.engine.queries.named_queries import ChangesRead
from millwheel.engine.queries.peer_client import Workers
from millwheel.errors import SetupError

_ROLE = "worker"  # its certificate is for servers and clients


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where and how the gateway serves. ``hosts`` are further names by which clients call it. See
    :class:`.GatewaySettings`."""

    root: Path
    host: str
    port: int
    security: str = ""
    origins: Sequence[str] = ()
    pages: str = ""
    hosts: Sequence[str] = ()


def serve(settings: ServeSettings, changes: ChangesRead, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. ``changes`` reads the named queries of the root; ``announce`` is called
    with the address; the state of its pages follows ``#``, a part that browsers never send. Raises
    SetupError when the gateway cannot be served."""
    try:
        from millwheel.adapters.front.http_server import FrontedServer
        from millwheel.tools.gateway.app import PROBES, Gateway, GatewaySettings
    except ImportError as ex:
        raise SetupError(
            "The gateway needs starlette and uvicorn: pip install 'millwheel-spark[serve]'"
        ) from ex
    from millwheel.tools.gateway.run_follower import FollowedRun

    run = read_run(settings.root)
    if run is None:
        raise SetupError(
            f"{settings.root} is not the root of a run: give the --root of its `millwheel run`"
        )
    if settings.pages and not Path(settings.pages).is_dir():
        raise SetupError(f"--pages {settings.pages} is not a folder")
    folder = settings.security or run.security
    credentials = load_security(folder, _ROLE)
    check_listen(f"{settings.host}:{settings.port}", credentials)
    tls = None if credentials is None or is_loopback(settings.host) else credentials.tls
    followed = FollowedRun(settings.root, changes)
    followed.start()
    hosts = () if tls else names_of(settings.host, settings.hosts)
    address = f"{settings.host}:{settings.port}"
    with listening(address, "The gateway cannot listen on", "; choose another --port") as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"{host}:{listener.getsockname()[1]}"
        admits = partial(credentials.admits, address=address) if credentials else None
        answers = GatewaySettings(admits, settings.origins, settings.pages, hosts)
        gateway = Gateway(followed, lambda: Workers(secured_links(credentials)), answers)
        fragment = f"/#token={credentials.proof(address)}" if credentials else ""
        announce(f"{'https' if tls else 'http'}://{address}{fragment}")
        options = _tls(folder) if tls else {}
        FrontedServer(
            gateway.app(), listener, limits.gateway(), PROBES, renewing(tls), **options
        ).serve_on_this_thread()
    followed.stop()


def _tls(folder: str) -> dict[str, Any]:
    own = _ROLE if (Path(folder) / f"{_ROLE}.pem").exists() else "process"
    return {
        "ssl_certfile": str(Path(folder) / f"{own}.pem"),
        "ssl_keyfile": str(Path(folder) / f"{own}.key"),
    }
