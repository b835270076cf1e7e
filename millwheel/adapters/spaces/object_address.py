"""The address of data: a path of this machine, or a prefix in a bucket of an object store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

SCHEMES: Mapping[str, str] = {
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "az": "az://container/prefix",
}
"""Scheme to an example of an address."""
PLACES = (
    "files lie in folders (also file://), or behind s3://, gs:// and az:// (pip install"
    " 'millwheel-spark[s3]')"
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class ObjectAddress:
    """``key`` is the path after the bucket, without a slash at either end: a prefix, or a
    pattern."""

    scheme: str
    bucket: str
    key: str

    @property
    def top(self) -> str:
        """The bucket, as a person writes it."""
        return f"{self.scheme}://{self.bucket}"

    def __str__(self) -> str:
        return f"{self.top}/{self.key}"


def in_no_store(scheme: str) -> str:
    """The sentence about a scheme that is not an object store's."""
    return f"nothing here reads or writes {scheme}://; {PLACES}"


def address_of(path: str, advice: Callable[[str], str] = in_no_store) -> ObjectAddress | None:
    """The address in an object store, None if ``path`` is a path of this machine (also
    ``file://``). ``advice`` is the sentence about a scheme of another system.

    Raises ValueError, with a sentence, for an address that leads nowhere.
    """
    if "://" not in path:
        return None
    scheme, _, rest = path.partition("://")
    if scheme == "file":
        if urlsplit(path).netloc not in ("", "localhost"):
            raise ValueError(f"option 'path' is {path}; write file:///path, or the path alone")
        return None
    if scheme not in SCHEMES:
        plain = re.sub(r"//[^/@]*@", "//", path)  # a password has no place in an error
        raise ValueError(f"option 'path' is {plain}: {advice(scheme)}")
    bucket, _, key = rest.partition("/")
    if "@" in bucket or "?" in key.partition("*")[0]:
        raise ValueError(
            "option 'path' holds more than a bucket and a name; credentials and endpoint belong"
            " into 'config', and secrets into ${secret:NAME} there; write for example path:"
            f" {SCHEMES[scheme]}"
        )
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"option 'path' is {path}, which names no bucket; write for example {SCHEMES[scheme]}"
        )
    if find_spec("obstore") is None:
        raise ValueError(
            f"option 'path' is {scheme}://…, which needs obstore: pip install 'millwheel-spark[s3]'"
        )
    return ObjectAddress(scheme, bucket, key.strip("/"))


def local_path(path: str) -> str:
    """A path of this machine, without ``file://``."""
    return unquote(urlsplit(path).path) if path.startswith("file://") else path
