"""``python -m millwheel.tools.http_source``: the endpoint of one stream over HTTP. The driver keeps
it alive."""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import Annotated, Any

import msgspec
import typer

from millwheel.adapters.front import limits
from millwheel.adapters.front.listener import listening
from millwheel.adapters.grpc.certificates import renewing
from millwheel.adapters.grpc.injection_client import InjectionResult
from millwheel.adapters.grpc.security import Security, check_listen, load_security
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.connect.connectors.http.options import HttpOptions
from millwheel.control.roots.shipping import load_shipped
from millwheel.errors import MillwheelError, SetupError
from millwheel.tools.client.injector import Injector

_PATIENCE_S = 20.0  # for workers to accept the records of a request; after that the answer is 503
_ROLE = "worker"


def main(
    root: Annotated[str, typer.Option(help="root of the pipeline, on this machine")],
    stream: Annotated[str, typer.Option(help="the stream that gets the records")],
    security: Annotated[
        str, typer.Option(help='folder with certificates and token; "": none')
    ] = "",
) -> None:
    """Accept records over HTTP until stopped."""
    die_with_parent()
    begin_process(root)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    try:
        _serve(root, stream, security)
    except MillwheelError as error:
        typer.echo(f"http: {error}", err=True)
        raise typer.Exit(Exit.BAD_CONFIG if isinstance(error, SetupError) else 1) from error


def _serve(root: str, stream: str, security: str) -> None:
    from millwheel.adapters.front.http_server import FrontedServer
    from millwheel.connect.connectors.http.endpoint import HEALTH, HttpEndpoint, aside

    source = next(spec.source for spec in load_shipped(root).streams if spec.name == stream)
    assert source is not None
    options = msgspec.convert(dict(source.options), HttpOptions)
    credentials = load_security(security, _ROLE)
    check_listen(f"{options.host}:{options.port}", credentials)
    with (
        _bound(options) as listener,
        Injector(root, stream, security=security, patience_s=_PATIENCE_S) as injector,
    ):

        def inject(
            lines: Sequence[bytes], ids: Sequence[str], traces: Sequence[str]
        ) -> InjectionResult:
            own = injector.records(lines)
            named = [name or record.id for name, record in zip(ids, own, strict=True)]
            return injector.send_records(injector.records(lines, named, traces))

        # else its port is open to this machine, as set in the file
        token = credentials.token if credentials and credentials.tls else ""
        endpoint = HttpEndpoint(options, token, lambda *posted: aside(lambda: inject(*posted)))
        tls = _tls(options, security, credentials)
        server = FrontedServer(
            endpoint.app(),
            listener,
            limits.http_source(),
            [HEALTH],
            renewing(credentials.tls if credentials else None),
            **tls,
        )
        server.serve_on_this_thread()


def _bound(options: HttpOptions) -> socket:
    return listening(
        f"{options.host}:{options.port}",
        "the source 'http' cannot listen on",
        "; choose another port",
    )


def _tls(options: HttpOptions, folder: str, credentials: Security | None) -> dict[str, Any]:
    if credentials is None or credentials.tls is None:
        return {}
    own = _ROLE if (Path(folder) / f"{_ROLE}.pem").exists() else "process"
    asks = ssl.CERT_REQUIRED if options.client_certificates else ssl.CERT_NONE
    names = {"ssl_certfile": f"{own}.pem", "ssl_keyfile": f"{own}.key", "ssl_ca_certs": "ca.pem"}
    return {
        "ssl_cert_reqs": asks,
        **{name: str(Path(folder) / file) for name, file in names.items()},
    }


if __name__ == "__main__":
    typer.run(main)
