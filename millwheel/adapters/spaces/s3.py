"""A root in an object store that speaks S3, by conditional writes: a name can be created only once
(``If-None-Match: *``), and an object is replaced only if it is unchanged since it was read (``If-Match``).

The client retries what may be retried, for a bounded time. What it cannot decide is settled here: a create without
an answer is read back, because nobody else writes what we write.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from millwheel.adapters.spaces.object_space import ObjectVersion
from millwheel.adapters.spaces.s3_address import S3Address
from millwheel.adapters.spaces.s3_client import S3Limits, connect, no_bucket, translated
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_CLAIM = ".claimed"
_CHUNK_BYTES = 8 << 20  # bytes of one part of an upload or download
_TRIES = 3  # attempts where the outcome of a conditional write is not known
_T = TypeVar("_T")


class S3Space:
    """:class:`millwheel.adapters.spaces.object_space.ReplacingSpace` below a prefix of a bucket.

    Credentials, and what the address leaves open, come from the environment (``AWS_ACCESS_KEY_ID``,
    ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, ``AWS_REGION``, ``AWS_ENDPOINT_URL``), or from the machine's role.
    """

    def __init__(self, address: S3Address, limits: S3Limits | None = None) -> None:
        self.root = address.root
        self._address = address
        self._skip = len(f"s3://{address.bucket}/")
        self._store = connect(address, limits or S3Limits())

    def kind(self) -> str:
        return "s3"

    def prepare(self, folder: str) -> None:
        """Folders are no more than parts of names."""

    def claim(self, folder: str) -> bool:
        return self.create(f"{folder}/{_CLAIM}", os.urandom(16))

    def claimed(self, folder: str) -> bool:
        return self.exists(f"{folder}/{_CLAIM}")

    def names(self, folder: str) -> list[str]:
        with self._explained("list", folder):
            found = obstore.list_with_delimiter(self._store, self._path(folder))
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        names = (path.rstrip("/").rpartition("/")[2] for path in paths)
        return [name for name in names if name != _CLAIM]

    def settle(self, folder: str) -> None:
        """Listed objects are durable."""

    def create(self, key: str, data: bytes, staged: str = "") -> bool:
        for _ in range(_TRIES):
            try:
                # Never in parts: a multipart upload would not heed the condition.
                obstore.put(self._store, self._path(key), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return self._found(key) == data
            except Exception as ex:  # the client's errors have no other base; the outcome is not known
                error = self._error(ex, "create", key)
                if isinstance(error, SetupError):
                    raise error from ex
                with suppress(UnavailableError):
                    if (found := self._found(key)) is not None:
                        return found == data
            else:
                return True
        raise UnavailableError(f"{error}. It is not known whether the object exists") from error

    def replace(self, key: str, data: bytes, tag: str) -> str | None:
        """Replace the version with this tag: the new tag, or None when another version is there (or none).

        An outcome that was not heard of is read back, so ``data`` must be content that nobody else writes.
        """
        try:
            mode = {"e_tag": tag}
            put = obstore.put(self._store, self._path(key), data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            return put["e_tag"]
        except (PreconditionError, FileNotFoundError):
            pass
        except Exception as ex:  # the client's errors have no other base; the outcome is not known
            error = self._error(ex, "replace", key)
            found = self.version(key)
            if found is None or found.data != data:
                raise error from ex
            return found.tag
        found = self.version(key)
        return found.tag if found is not None and found.data == data else None

    def version(self, key: str) -> ObjectVersion | None:
        """The current object; None if there is none."""

        def read() -> ObjectVersion:
            got = obstore.get(self._store, self._path(key))
            return ObjectVersion(bytes(got.bytes()), got.meta["e_tag"] or "")

        return self._if_there(key, read)

    def get(self, key: str) -> bytes:
        found = self._found(key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "it is missing", key)
        return found

    def _found(self, key: str) -> bytes | None:
        found = self.version(key)
        return None if found is None else found.data

    def exists(self, key: str) -> bool:
        return self._if_there(key, lambda: obstore.head(self._store, self._path(key))) is not None

    def delete(self, key: str) -> None:
        self._if_there(key, lambda: obstore.delete(self._store, self._path(key)), "delete")

    def put_file(self, source: str, key: str, *, immutable: bool) -> str:
        """The store checks each part against the checksum that is sent with it."""
        with self._explained(f"upload {source} as", key):
            obstore.put(self._store, self._path(key), Path(source), chunk_size=_CHUNK_BYTES, max_concurrency=4)
        return source

    def share_file(self, key: str, target: str) -> bool:
        return False

    def fetch_file(self, key: str, target: str) -> None:
        """In pieces, each a request of its own: a time limit for the whole would be one for the size."""

        def fetch() -> bool:
            path = self._path(key)
            size = obstore.head(self._store, path)["size"]
            with open(target, "xb") as file:
                for start in range(0, size, _CHUNK_BYTES):
                    end = min(start + _CHUNK_BYTES, size)
                    file.write(obstore.get_range(self._store, path, start=start, end=end))
            return True

        if self._if_there(key, fetch, f"download to {target}") is None:
            raise FileNotFoundError(errno.ENOENT, "it is missing", key)

    # --- answers that are none

    def _path(self, key: str) -> str:
        return key[self._skip :]

    def _if_there(self, key: str, call: Callable[[], _T], doing: str = "read") -> _T | None:
        """The result of ``call``, or None if there is no such object. A missing bucket is an error."""
        try:
            with self._explained(doing, key):
                return call()
        except FileNotFoundError as ex:
            if no_bucket(ex):
                raise self._error(ex, doing, key) from ex
            return None

    @contextmanager
    def _explained(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except (OSError, MillwheelError):
            raise
        except Exception as ex:  # the client's errors have no other base
            raise self._error(ex, doing, key) from ex

    def _error(self, ex: Exception, doing: str, key: str) -> MillwheelError:
        return translated(ex, f"{doing} {key}", self._address)
