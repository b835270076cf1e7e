"""The client of a bucket: how it connects, how long a call may take, and the meaning of its
errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_REASON_LETTERS = 400  # characters of an error of the store that are shown
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
"""Stores answer with the same status where an object is missing and where its bucket is."""
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The variables of the environment that name the endpoint."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The time limits of a call: each request takes up to ``request_s`` seconds, no new attempt
    begins after ``retry_s``."""

    connect_s: float = 5.0
    request_s: float = 120.0  # for a whole file of a sink
    retry_s: float = 15.0
    retries: int = 5


def library() -> Any:
    """The ``obstore`` module. Raises SetupError if it is not installed."""
    try:
        import obstore
    except ImportError as ex:
        raise SetupError(
            "s3://, gs:// and az:// need the package obstore; install it with: pip install"
            " 'millwheel-spark[s3]'"
        ) from ex
    return obstore


def connect(address: ObjectAddress, config: Mapping[str, Any], limits: CallLimits) -> Any:
    """A client for one bucket; nothing is asked yet. Raises SetupError when configuration or
    environment make no sense."""
    library()
    from obstore import store

    options = dict(config)
    if address.scheme == "s3":
        options.setdefault("checksum_algorithm", "SHA256")  # of every body, checked by the store
        # the only variable that the client does not read
        named = os.environ.get("AWS_ENDPOINT_URL_S3")
        if named and not any("endpoint" in name.lower() for name in options):
            options["endpoint"] = named
    kind: Any = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[address.scheme]
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=limits.connect_s),
        "timeout": timedelta(seconds=limits.request_s),
    }
    if _is_plain(address.scheme, options):
        client["allow_http"] = True
    waits = {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    }
    retries = {
        "max_retries": limits.retries,
        "retry_timeout": timedelta(seconds=limits.retry_s),
        "backoff": waits,
    }
    try:
        return kind(address.bucket, config=options, client_options=client, retry_config=retries)
    # the client's errors have no other base; their text may quote the configuration
    except Exception as ex:
        names = ", ".join(sorted(config)) or "nothing"
        raise SetupError(
            f"{address.top} cannot be used ({type(ex).__name__}); check the names and values under"
            f" 'config' ({names}) and the environment"
        ) from None


@contextmanager
def explaining_calls(address: ObjectAddress, doing: str, name: str) -> Iterator[None]:
    """Any error of the client within becomes the error of :func:`explained_call`."""
    try:
        yield
    except (MillwheelError, GeneratorExit):
        raise
    except Exception as ex:  # the client's errors have no other base
        raise explained_call(ex, f"{doing} {name}", address) from ex


def explained_call(ex: Exception, doing: str, address: ObjectAddress) -> MillwheelError:
    """The error to raise for a client's error: the failed operation, the reason and the remedy."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    what = f"cannot {doing}: {reason_of(ex)}"
    if no_bucket(ex):
        return SetupError(
            f"{what}; there is no bucket {address.bucket!r} at this endpoint: create it, or name"
            " another"
        )
    if isinstance(ex, (PermissionDeniedError, UnauthenticatedError)):
        return SetupError(
            f"{what}; give credentials ({_CREDENTIALS[address.scheme]}, or those of the machine's"
            " role) that may get, put, delete and list there"
        )
    return UnavailableError(
        f"{what}; look at the endpoint ({_ENDPOINTS[address.scheme][-1]}), the region, the"
        " credentials and the network"
    )


def no_bucket(ex: Exception) -> bool:
    """Whether the bucket is missing, and not only the object."""
    return any(word in str(ex) for word in _NO_BUCKET)


def reason_of(ex: Exception) -> str:
    """The part of a client's error that helps a person."""
    return " ".join(str(ex).partition("\n\nDebug source")[0].split())[:_REASON_LETTERS]


def _is_plain(scheme: str, options: Mapping[str, Any]) -> bool:
    """Whether requests go over HTTP without TLS, as to an emulator."""
    if options.get("use_emulator") or os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in (
        "1",
        "true",
    ):
        return True
    endpoints = [*options.values(), *(os.environ.get(name) for name in _ENDPOINTS[scheme])]
    return any(isinstance(value, str) and value.startswith("http://") for value in endpoints)
