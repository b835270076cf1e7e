"""``s3://bucket/prefix`` and its like as the address of a root, with the public part of its
connection settings.

    s3://bucket/prefix                                  endpoint and region of the environment
    s3://bucket/prefix?endpoint=http://h:9000&region=.. those of the address, for every process
    gs://bucket/prefix?endpoint=...                     Google Cloud Storage
    az://container/prefix?account=...&endpoint=...      Azure Blob Storage

Credentials are never part of it: an address appears in logs, command lines and messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from millwheel.adapters.spaces.object_address import SCHEMES, ObjectAddress
from millwheel.errors import SetupError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,127}")
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": {"endpoint": "endpoint", "region": "region"},
    "gs": {"endpoint": "base_url"},
    "az": {"endpoint": "endpoint", "account": "account_name"},
}
"""Options of an address, and the client's names for them."""


@dataclass(frozen=True, slots=True)
class RootAddress:
    """Missing ``options`` come from the environment, or have the store's usual values."""

    scheme: str
    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        """The common prefix of all keys, as a user writes it."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}"

    def bucket_address(self) -> ObjectAddress:
        """Its bucket."""
        return ObjectAddress(self.scheme, self.bucket, "")

    def config(self) -> dict[str, str]:
        """The settings for the client."""
        return {_OPTIONS[self.scheme][name]: value for name, value in self.options}

    def __str__(self) -> str:
        return f"{self.root}?{urlencode(self.options, safe=':/')}" if self.options else self.root


def in_bucket(address: str) -> bool:
    """Whether a root lies in an object store."""
    return address.partition("://")[0] in SCHEMES and "://" in address


def parse_root(address: str) -> RootAddress:
    """The parsed address. Raises SetupError, with a sentence, if it is malformed."""
    url = urlsplit(address)
    scheme, prefix = url.scheme, url.path.strip("/")
    if "@" in url.netloc:
        raise SetupError(
            "A root's address holds no credentials: put them into the environment"
            " (AWS_ACCESS_KEY_ID and its like)"
        )
    example = SCHEMES.get(scheme, SCHEMES["s3"])
    if scheme not in SCHEMES or not _BUCKET.fullmatch(url.netloc):
        raise SetupError(f"The root {address} names no bucket: write {example}")
    if not prefix or not all(_PART.fullmatch(part) for part in prefix.split("/")):
        raise SetupError(
            f"The root {address} needs a prefix of letters, digits, '_', '-', '.' and '=' in the"
            f" bucket, so that it has a prefix of its own: write {example}"
        )
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    option_names = _OPTIONS[scheme]
    if url.fragment or (strange := sorted(set(options) - set(option_names))):
        what = f"#{url.fragment}" if url.fragment else strange[0]
        raise SetupError(
            f"The root {address} has {what!r}, which is not one of its options"
            f" ({', '.join(option_names)})"
        )
    endpoint = options.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise SetupError(
            f"The root {address} has the endpoint {endpoint!r}: write http://host:port or"
            " https://host"
        )
    return RootAddress(
        scheme,
        url.netloc,
        prefix,
        tuple((name, options[name]) for name in option_names if options.get(name)),
    )
