"""A bucket: whole objects, reads of ranges, listings, and writes that fail if another process has
written first.

Roots and data rest on the same promises. All stores are strongly consistent: every read and listing
after a completed write shows it. Of all writers that find nothing under a name one creates the
object, and of all that find one version one replaces it.

Keys such as ``in//a`` and ``in/../a`` are legal in S3, and programs that join paths make them. The
client then returns nothing of a whole page, so such a listing is Arrow's. It has no tags; the time
of the last change stands for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_client import (
    CallLimits,
    connect,
    explaining_calls,
    library,
    no_bucket,
    reason_of,
)
from millwheel.errors import MillwheelError, SetupError

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


_NUMBER = "millwheel"
"""The attribute of an object with the number of its batch. One word of letters, because Azure
accepts no other."""
_PAGE = 1_000  # objects of one answer to a listing
PART_BYTES = 8 << 20  # of an upload or download of a file


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """The version of an object in the store's own words. S3 and Azure compare ``tag`` before they
    replace an object, Google Cloud Storage ``generation``."""

    tag: str
    generation: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it is now. ``key`` is its name in the bucket; ``number`` is that of the batch
    that was written, -1 for objects of others and in listings."""

    key: str
    size: int
    version: ObjectVersion
    changed_at_us: int
    number: int = -1


class ObjectChangedError(MillwheelError):
    """The object no longer has the requested version."""


class ObjectStore:
    """One bucket. For any thread. Connects when it is first used.

    ``config`` goes to obstore: endpoint, region, credentials; options that it omits come from the
    environment of the process, or from the machine's role. Errors are SetupError where a person
    must change something, UnavailableError where a later try may work; neither shows ``config``.
    """

    def __init__(
        self, address: ObjectAddress, config: Mapping[str, Any], limits: CallLimits | None = None
    ) -> None:
        self.address = address
        self._config = dict(config)
        self._limits = limits or CallLimits()
        self._client: Any = None

    # --- reading ----------------------------------------------------------------------------------

    def list(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """Everything whose name begins with ``prefix``, page by page, in the order of the names.
        With ``after`` only names behind that one. The prefix ends anywhere in a name. Some
        keys may be :func:`.is_odd`: they are there, but cannot be read."""
        from obstore.exceptions import InvalidPathError

        folder, last = prefix.rpartition("/")[0], after
        with explaining_calls(self.address, "list", self._name(prefix)):
            try:
                for page in library().list(
                    self._store(), folder or None, offset=after or None, chunk_size=_PAGE
                ):
                    for each in map(_object_of, page):
                        # A store may ignore the beginning of a listing, as Azure's emulator does.
                        if each.key.startswith(prefix) and each.key > after:
                            last = each.key
                            yield each
            except InvalidPathError as ex:
                yield from self._with_odd_keys(prefix, folder, last, reason_of(ex))

    def _with_odd_keys(
        self, prefix: str, folder: str, after: str, reason: str
    ) -> Iterator[StoredObject]:
        for key, size, changed_at_us in sorted(
            listed_with_odd_keys(self.address, self._config, folder, reason)
        ):
            if key.startswith(prefix) and key > after:
                yield StoredObject(key, size, ObjectVersion(str(changed_at_us)), changed_at_us)

    def names(self, folder: str) -> tuple[str, ...]:
        """The names directly in ``folder``, of objects and of folders with objects."""
        with explaining_calls(self.address, "list", self._name(folder)):
            listing = library().list_with_delimiter(self._store(), folder)
        paths = (*listing["common_prefixes"], *(each["path"] for each in listing["objects"]))
        return tuple(path.rstrip("/").rpartition("/")[2] for path in paths)

    def head(self, key: str) -> StoredObject | None:
        """The current object; None if there is none."""
        with explaining_calls(self.address, "read", self._name(key)):
            got = self._got(key, {"head": True})
            return (
                None if got is None else _object_of(got.meta, str(got.attributes.get(_NUMBER, "")))
            )

    def load(self, key: str) -> tuple[bytes, ObjectVersion] | None:
        """The content and its version; None when there is no object."""
        with explaining_calls(self.address, "read", self._name(key)):
            got = self._got(key)
            return None if got is None else (bytes(got.bytes()), _version(got.meta))

    def get(self, key: str) -> bytes | None:
        """The content; None when there is none."""
        loaded = self.load(key)
        return None if loaded is None else loaded[0]

    def read(self, key: str, start: int, end: int, tag: str = "") -> bytes:
        """The bytes from ``start`` to ``end``. Raises ObjectChangedError when the object has
        another tag than ``tag``, or is gone."""
        from obstore.exceptions import PreconditionError

        options = {"range": (start, end), **({"if_match": tag} if tag else {})}
        with explaining_calls(self.address, "read", self._name(key)):
            try:
                got = self._got(key, options)
            except PreconditionError as ex:
                raise ObjectChangedError(
                    f"{self._name(key)} was replaced while it was read"
                ) from ex
            if got is None:
                raise ObjectChangedError(f"{self._name(key)} is gone")
            return bytes(got.bytes())

    def _got(self, key: str, options: Mapping[str, Any] | None = None) -> Any:
        """The answer to a request, None if there is no object. A missing bucket is an error."""
        try:
            return library().get(self._store(), key, options=options)
        except FileNotFoundError as ex:
            if no_bucket(ex):
                raise
            return None

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self, key: str, data: bytes, former: ObjectVersion | None, number: int = -1
    ) -> ObjectVersion | None:
        """Write the whole object in one step if the current one is ``former`` (None: nothing).
        Returns the new version, None when something else is there. A write whose answer is lost may
        have happened: look again."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create"
        if former is not None:
            mode = {
                "e_tag": former.tag,
                **({"version": former.generation} if former.generation else {}),
            }
        attributes = {} if number < 0 else {"attributes": {_NUMBER: str(number)}}
        with explaining_calls(self.address, "write", self._name(key)):
            try:
                # Never in parts: a multipart upload would not heed the condition.
                put = library().put(
                    self._store(), key, data, mode=mode, use_multipart=False, **attributes
                )
            except (AlreadyExistsError, PreconditionError):
                return None
            except FileNotFoundError as ex:
                if former is None or no_bucket(ex):
                    raise
                return None  # gone since it was read: the error is that, or the condition
            return ObjectVersion(put["e_tag"] or "", put["version"] or "")

    def stage(self, key: str, data: bytes) -> None:
        """Write an object under a name that no other writer uses."""
        with explaining_calls(self.address, "write", self._name(key)):
            library().put(self._store(), key, data)

    def upload(self, key: str, source: str) -> None:
        """Write an object with the content of a local file, in parts, under a name that no other
        writer uses."""
        with explaining_calls(self.address, f"upload {source} as", self._name(key)):
            library().put(
                self._store(), key, Path(source), chunk_size=PART_BYTES, max_concurrency=4
            )

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        with explaining_calls(self.address, "delete", self._name(key)):
            try:
                library().delete(self._store(), key)
            except FileNotFoundError as ex:
                if no_bucket(ex):
                    raise

    def _store(self) -> Any:
        if self._client is None:
            self._client = connect(self.address, self._config, self._limits)
        return self._client

    def _name(self, key: str) -> str:
        return f"{self.address.top}/{key}"


def _object_of(meta: Any, number: str = "") -> StoredObject:
    changed_at_us = int(meta["last_modified"].timestamp() * 1_000_000)
    return StoredObject(
        meta["path"],
        meta["size"],
        _version(meta),
        changed_at_us,
        int(number) if number.isdigit() else -1,
    )


def _version(meta: Any) -> ObjectVersion:
    return ObjectVersion(meta["e_tag"] or "", meta["version"] or "")
