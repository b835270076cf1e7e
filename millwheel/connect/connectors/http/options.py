"""The options of the source ``http``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec

from millwheel.connect.options import Option, read_options
from millwheel.core.model.times import SECOND, duration_us

_LONGEST_S = 600  # of a body: a client that takes longer holds a place that others need
# the limit of a record, and therefore of a request, which may hold just one
_MOST_BYTES = 4_000_000


class HttpOptions(msgspec.Struct, frozen=True):
    """Records that are sent in by POST, as JSON lines or CloudEvents. Give the stream an ``id``."""

    port: Annotated[int, Option("8080", python="int | str", text="the port to listen on")]
    host: Annotated[
        str,
        Option(
            "127.0.0.1", text="the address to listen on; any but the loopback needs `--security`"
        ),
    ] = "127.0.0.1"
    max_bytes: Annotated[int, Option("4000000", text="the largest request, unpacked")] = _MOST_BYTES
    max_requests: Annotated[
        int, Option("64", text="the number of requests in progress at once")
    ] = 64
    body_timeout: Annotated[
        str,
        Option(
            "30s",
            python="Duration",
            text=(
                "how long the body of a request may take (1s to 10m); then the answer is 408,"
                " and its place is free"
            ),
        ),
    ] = "30s"
    client_certificates: Annotated[
        bool, Option("false", text="with `--security`: whether clients must show a certificate")
    ] = True
    allow_hosts: Annotated[
        tuple[str, ...],
        Option(
            "[ingest.example.com]",
            text=(
                "on the loopback: names by which browsers may call the endpoint, beside those"
                " of this machine, for example behind a proxy; programs may use any"
            ),
            default="none",
        ),
    ] = ()
    allow_origins: Annotated[
        tuple[str, ...],
        Option(
            "['https://shop.example.com']",
            text=(
                "sites whose pages may send records from a browser, such as"
                ' `https://shop.example.com`; `"*"` for all'
            ),
            default="none",
        ),
    ] = ()

    def __post_init__(self) -> None:
        for name, value, most in (
            ("port", self.port, 65_535),
            ("max_bytes", self.max_bytes, _MOST_BYTES),
            ("max_requests", self.max_requests, 1_000),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"option {name!r} is {value}; write a number from 1 to {most}")
        if not 1 <= self.body_timeout_s <= _LONGEST_S:
            raise ValueError(
                f"option 'body_timeout' is {self.body_timeout}; write a duration from 1s to 10m"
            )

    @property
    def body_timeout_s(self) -> float:
        """``body_timeout`` in seconds. Raises ValueError unless it is a duration."""
        return duration_us(self.body_timeout) / SECOND


def read_http_options(options: Mapping[str, Any]) -> HttpOptions:
    """Raises ValueError, with a sentence, if an option cannot work or a library is missing."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ValueError(
            "the source 'http' needs starlette and uvicorn: pip install 'millwheel-spark[http]'"
        )
    return read_options("the source 'http'", options, HttpOptions)
