"""Listings with keys that the client of object stores refuses, such as ``in//a`` and ``in/../a``.

They are legal in S3, and programs that join paths make them. The client then gives nothing of a
whole page, so the listing is Arrow's. It has no tags; the time of the last change stands for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.errors import SetupError

_ODD = re.compile(r"(?:^|/)(?:\.{1,2})?(?:/|$)|[\x00-\x1f\x7f]")
_NAMES = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
    "skip_signature": "anonymous",
    "virtual_hosted_style_request": "force_virtual_addressing",
}
"""Options of the client to those of Arrow."""
_TRUE = {"true", "1", "yes"}


def is_odd(key: str) -> bool:
    """Whether the client refuses a key: it has an empty part, a part of points only, or control
    characters."""
    return _ODD.search(key) is not None


def listed_with_odd_keys(
    address: ObjectAddress, config: Mapping[str, Any], folder: str, odd: str
) -> Iterator[tuple[str, int, int]]:
    """(key, size, changed at µs) of everything below a folder of a bucket. Raises SetupError for
    other stores than S3, and OSError as Arrow does."""
    if address.scheme != "s3":
        raise SetupError(
            f"{address.top} cannot be listed, because it has {odd}; rename or delete that object,"
            " or name a folder that does not hold it"
        )
    from pyarrow import fs

    where = "/".join(part for part in (address.bucket, folder) if part)
    store = fs.S3FileSystem(**_options(config))
    for entry in store.get_file_info(fs.FileSelector(where, recursive=True, allow_not_found=True)):
        if entry.type == fs.FileType.File:
            yield entry.path[len(address.bucket) + 1 :], entry.size, entry.mtime_ns // 1_000


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in config.items():
        option = _NAMES.get(name.lower().removeprefix("aws_"))
        if option in ("anonymous", "force_virtual_addressing"):
            options[option] = str(value).lower() in _TRUE
        elif option is not None:
            options[option] = value
    return options
