"""The client of an S3 store: its retries, and the meaning of its errors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from millwheel.adapters.spaces.s3_address import S3Address
from millwheel.errors import MillwheelError, SetupError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import S3Config

_REASON_LETTERS = 400  # characters of an error of the store that are shown


@dataclass(frozen=True, slots=True)
class S3Limits:
    """How long a call may take: each request up to ``request_s`` seconds, no new attempt after ``retry_s``."""

    connect_s: float = 5.0
    request_s: float = 30.0
    retry_s: float = 15.0
    retries: int = 5


def connect(address: S3Address, limits: S3Limits) -> S3Store:
    """A client for one bucket; nothing is asked yet. Raises SetupError when address or environment make no sense."""
    endpoint = address.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    config: S3Config = {"checksum_algorithm": "SHA256"}  # of every body, checked by the store
    if endpoint:
        config["endpoint"] = endpoint
    if address.region:
        config["region"] = address.region
    try:
        return S3Store(
            address.bucket,
            config=config,
            client_options={
                "connect_timeout": timedelta(seconds=limits.connect_s),
                "timeout": timedelta(seconds=limits.request_s),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={
                "max_retries": limits.retries,
                "retry_timeout": timedelta(seconds=limits.retry_s),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=2),
                    "base": 2,
                },
            },
        )
    except Exception as ex:  # the client's errors have no other base
        raise SetupError(f"The root {address.root} cannot be used: {ex}") from ex


def no_bucket(ex: Exception) -> bool:
    """Whether the bucket is missing. Stores use the same status for a missing object."""
    return "NoSuchBucket" in str(ex)


def translated(ex: Exception, doing: str, address: S3Address) -> MillwheelError:
    """The error to raise for a client's error: the failed operation, the reason and the remedy."""
    reason = " ".join(str(ex).partition("\n\nDebug source")[0].split())[:_REASON_LETTERS]
    what = f"cannot {doing}: {reason}"
    if no_bucket(ex):
        return SetupError(f"{what}. There is no bucket {address.bucket} at this endpoint: create it, or name another")
    if isinstance(ex, (PermissionDeniedError, UnauthenticatedError)):
        return SetupError(
            f"{what}. Give credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or the machine's role) that may get, "
            f"put, delete and list below {address.root}"
        )
    return UnavailableError(
        f"{what}. Look at the endpoint (AWS_ENDPOINT_URL, or ?endpoint= in the root), the region, the credentials and "
        "the network"
    )
