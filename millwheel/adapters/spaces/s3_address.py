"""``s3://bucket/prefix`` as the address of a root, with the public part of its connection settings.

    s3://bucket/prefix                                        the endpoint and region of the environment
    s3://bucket/prefix?endpoint=http://host:9000&region=...   those of the address, for every process of the run

Credentials are never part of it: an address appears in logs, command lines and messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from millwheel.errors import SetupError

SCHEME = "s3"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,127}")
_OPTIONS = ("endpoint", "region")


@dataclass(frozen=True, slots=True)
class S3Address:
    """``endpoint`` and ``region`` are "" if they come from the environment or are those of AWS."""

    bucket: str
    prefix: str
    endpoint: str = ""
    region: str = ""

    @property
    def root(self) -> str:
        """The common prefix of all keys, as a user writes it."""
        return f"{SCHEME}://{self.bucket}/{self.prefix}"

    def __str__(self) -> str:
        options = {name: value for name in _OPTIONS if (value := getattr(self, name))}
        return f"{self.root}?{urlencode(options, safe=':/')}" if options else self.root


def is_s3(address: str) -> bool:
    """Whether a root lies in an object store."""
    return address.startswith(f"{SCHEME}://")


def parse_s3(address: str) -> S3Address:
    """The parsed address. Raises SetupError, with a sentence, if it is malformed."""
    found = urlsplit(address)
    prefix = found.path.strip("/")
    options = dict(parse_qsl(found.query, keep_blank_values=True))
    if "@" in found.netloc:
        raise SetupError("A root's address holds no credentials: put them into AWS_ACCESS_KEY_ID and its like")
    if found.scheme != SCHEME or not _BUCKET.fullmatch(found.netloc):
        raise SetupError(f"The root {address} names no bucket: write s3://bucket/prefix")
    if not prefix or not all(_PART.fullmatch(part) for part in prefix.split("/")):
        raise SetupError(
            f"The root {address} needs a prefix of letters, digits, '_', '-', '.' and '=' in the bucket, so that it "
            "has a prefix of its own: write s3://bucket/prefix"
        )
    if found.fragment or (strange := sorted(set(options) - set(_OPTIONS))):
        what = f"#{found.fragment}" if found.fragment else strange[0]
        raise SetupError(f"The root {address} has {what!r}, which is none of its options ({', '.join(_OPTIONS)})")
    endpoint = options.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise SetupError(f"The root {address} has the endpoint {endpoint!r}: write http://host:port or https://host")
    return S3Address(found.netloc, prefix, endpoint, options.get("region", ""))
