"""The options of the source ``http``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import msgspec

from millwheel.core.model.times import SECOND, duration_us
from millwheel.options import read_options

_EXAMPLES = {
    "port": "port: 8080",
    "host": "host: 127.0.0.1",
    "max_bytes": "max_bytes: 4000000",
    "max_requests": "max_requests: 64",
    "body_timeout": "body_timeout: 30s",
    "client_certificates": "client_certificates: false",
    "allow_hosts": "allow_hosts: [ingest.example.com]",
    "allow_origins": "allow_origins: ['https://shop.example.com']",
}
_LONGEST_S = 600  # of a body: a client that takes longer holds a place that others need
_MOST_BYTES = 4_000_000  # the limit of a record, and therefore of a request, which may hold just one


class HttpOptions(msgspec.Struct, frozen=True):
    """The endpoint listens on ``host`` and ``port``. A request has at most ``max_bytes``, and at most ``max_requests``
    are in progress at once; the body must be there within ``body_timeout``. With a security folder clients must also
    show a certificate, unless ``client_certificates`` is false. On the loopback browsers call it by a name of this
    machine or one of ``allow_hosts``. Pages of ``allow_origins`` ("*": any) may send records, others may not."""

    port: int
    host: str = "127.0.0.1"
    max_bytes: int = _MOST_BYTES
    max_requests: int = 64
    body_timeout: str = "30s"
    client_certificates: bool = True
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, given, most in (
            ("port", self.port, 65_535),
            ("max_bytes", self.max_bytes, _MOST_BYTES),
            ("max_requests", self.max_requests, 1_000),
        ):
            if not 1 <= given <= most:
                raise ValueError(f"option {name!r} is {given}; write a number from 1 to {most}")
        if not 1 <= self.body_timeout_s <= _LONGEST_S:
            raise ValueError(f"option 'body_timeout' is {self.body_timeout}; write a duration from 1s to 10m")

    @property
    def body_timeout_s(self) -> float:
        """``body_timeout`` in seconds. Raises ValueError for what is no duration."""
        return duration_us(self.body_timeout) / SECOND


def read_http_options(given: Mapping[str, Any]) -> HttpOptions:
    """Raises ValueError, with a sentence, if an option cannot work or a library is missing."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ValueError("the source 'http' needs starlette and uvicorn: pip install 'millwheel-spark[http]'")
    return read_options("the source 'http'", given, HttpOptions, _EXAMPLES)
