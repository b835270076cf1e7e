"""A bucket for data: listing, reads of ranges, and writes that fail if another process has written first.

All stores are strongly consistent: every read and listing after a completed write shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millwheel.adapters.objects.address import ObjectAddress
from millwheel.adapters.objects.odd_keys import listed_with_odd_keys
from millwheel.errors import MillwheelError, SetupError, UnavailableError

_NUMBER = "millwheel"
"""The attribute of an object with the number of its batch. One word of letters, because Azure accepts no other."""
_REASON_LETTERS = 400  # characters of an error of the store that are shown
_PAGE = 1_000  # objects of one answer to a listing
_CONNECT_S, _REQUEST_S, _RETRY_S, _RETRIES = 5.0, 120.0, 15.0, 5


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it is now. ``key`` is its name in the bucket; ``tag`` and ``version`` change with its content;
    ``number`` is that of the batch that was written, -1 for objects of others and in listings."""

    key: str
    size: int
    tag: str
    version: str
    changed_at_us: int
    number: int = -1


class ObjectChangedError(MillwheelError):
    """The object no longer has the requested version."""


class ObjectStore:
    """One bucket. For any thread. Connects when it is first used.

    ``config`` goes to obstore: endpoint, region, credentials; what it leaves open comes from the environment of the
    process, or from the machine's role. Errors are SetupError where a person must change something, UnavailableError
    where a later try may work; neither shows ``config``.
    """

    def __init__(self, address: ObjectAddress, config: Mapping[str, Any]) -> None:
        self.address = address
        self._config = dict(config)
        self._client: Any = None

    def list(self, prefix: str, after: str = "") -> Iterator[Found]:
        """Everything whose name begins with ``prefix``, page by page, in the order of the names. With ``after`` only
        what comes behind that name. The prefix ends anywhere in a name. Some keys may be :func:`.is_odd`: they are
        there, but cannot be read."""
        from obstore.exceptions import InvalidPathError

        folder, last = prefix.rpartition("/")[0], after
        with self._explained("list", prefix):
            try:
                for page in library().list(self._store(), folder or None, offset=after or None, chunk_size=_PAGE):
                    for each in map(_found, page):
                        # A store may ignore where a listing is to begin, as Azure's emulator does.
                        if each.key.startswith(prefix) and each.key > after:
                            last = each.key
                            yield each
            except InvalidPathError as ex:
                reason = " ".join(str(ex).partition("\n\nDebug source")[0].split())[:_REASON_LETTERS]
                yield from self._with_odd_keys(prefix, folder, last, reason)

    def _with_odd_keys(self, prefix: str, folder: str, after: str, reason: str) -> Iterator[Found]:
        for key, size, changed_at_us in sorted(listed_with_odd_keys(self.address, self._config, folder, reason)):
            if key.startswith(prefix) and key > after:
                yield Found(key, size, str(changed_at_us), "", changed_at_us)

    def head(self, key: str) -> Found | None:
        """The current object; None if there is none."""
        with self._explained("read", key):
            try:
                got = library().get(self._store(), key, options={"head": True})
            except FileNotFoundError as ex:
                self._must_have_bucket(ex, key)
                return None
            return _found(got.meta, str(got.attributes.get(_NUMBER, "")))

    def read(self, key: str, start: int, end: int, tag: str = "") -> bytes:
        """The bytes from ``start`` to ``end``. Raises ObjectChangedError when the object has another tag than ``tag``,
        or is gone."""
        from obstore.exceptions import PreconditionError

        options = {"range": (start, end), **({"if_match": tag} if tag else {})}
        with self._explained("read", key):
            try:
                return bytes(library().get(self._store(), key, options=options).bytes())
            except PreconditionError as ex:
                raise ObjectChangedError(f"{self._name(key)} was replaced while it was read") from ex
            except FileNotFoundError as ex:
                self._must_have_bucket(ex, key)
                raise ObjectChangedError(f"{self._name(key)} is gone") from ex

    def get(self, key: str) -> bytes | None:
        """The content; None when there is none."""
        with self._explained("read", key):
            try:
                return bytes(library().get(self._store(), key).bytes())
            except FileNotFoundError as ex:
                self._must_have_bucket(ex, key)
                return None

    def write(self, key: str, data: bytes, former: Found | None, number: int = -1) -> bool:
        """Write the whole object in one step if what is there is ``former`` (None: nothing); False when it is not. A
        write whose answer is lost may have happened: look again."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        version = {} if former is None or not former.version else {"version": former.version}
        mode = "create" if former is None else {"e_tag": former.tag, **version}
        attributes = {} if number < 0 else {"attributes": {_NUMBER: str(number)}}
        with self._explained("write", key):
            try:
                # Never in parts: a multipart upload would not heed the condition.
                library().put(self._store(), key, data, mode=mode, use_multipart=False, **attributes)
            except (AlreadyExistsError, PreconditionError):
                return False
            except FileNotFoundError as ex:
                self._must_have_bucket(ex, key)
                return False
            return True

    def stage(self, key: str, data: bytes) -> None:
        """Write an object under a name that no other writer uses."""
        with self._explained("write", key):
            library().put(self._store(), key, data)

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        with self._explained("delete", key):
            try:
                library().delete(self._store(), key)
            except FileNotFoundError:
                return

    # --- the client ---------------------------------------------------------------------------------------

    def _store(self) -> Any:
        if self._client is None:
            self._client = self._connected()
        return self._client

    def _connected(self) -> Any:
        from obstore import store

        address, config = self.address, dict(self._config)
        if address.scheme == "s3":
            config.setdefault("checksum_algorithm", "SHA256")
            if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3"):
                config.setdefault("endpoint", endpoint)
        endpoints = [*config.values(), os.environ.get("AWS_ENDPOINT_URL", "")]
        plain = any(isinstance(value, str) and value.startswith("http://") for value in endpoints)
        kind: Any = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[address.scheme]
        client: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "timeout": timedelta(seconds=_REQUEST_S),
        }
        if plain or config.get("use_emulator"):
            client["allow_http"] = True
        waits = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
        retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S), "backoff": waits}
        try:
            return kind(address.bucket, config=config, client_options=client, retry_config=retries)
        except Exception as ex:  # the client's errors have no other base; their text may quote the configuration
            names = ", ".join(sorted(self._config)) or "nothing"
            raise SetupError(
                f"{address.top} cannot be used ({type(ex).__name__}); check the names and values under 'config' "
                f"({names}) and the environment"
            ) from None

    # --- errors -------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return f"{self.address.top}/{key}"

    def _must_have_bucket(self, ex: Exception, key: str) -> None:
        if any(word in str(ex) for word in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")):
            raise SetupError(
                f"cannot use {self._name(key)}: there is no bucket {self.address.bucket!r} at this endpoint; create "
                "it, or name another"
            ) from ex

    @contextmanager
    def _explained(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except (MillwheelError, GeneratorExit):
            raise
        except Exception as ex:  # the client's errors have no other base
            raise self._error(ex, doing, key) from ex

    def _error(self, ex: Exception, doing: str, key: str) -> MillwheelError:
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        reason = " ".join(str(ex).partition("\n\nDebug source")[0].split())[:_REASON_LETTERS]
        what = f"cannot {doing} {self._name(key)}: {reason}"
        if isinstance(ex, (PermissionDeniedError, UnauthenticatedError)):
            return SetupError(f"{what}; give credentials that may get, put, delete and list there")
        self._must_have_bucket(ex, key)
        return UnavailableError(f"{what}; look at the endpoint, the region, the credentials and the network")


def library() -> Any:
    """The ``obstore`` module. Raises SetupError if it is not installed."""
    try:
        import obstore
    except ImportError as ex:
        raise SetupError(
            "s3://, gs:// and az:// need the package obstore; install it with: pip install 'millwheel-spark[s3]'"
        ) from ex
    return obstore


def _found(meta: Any, number: str = "") -> Found:
    changed_at_us = int(meta["last_modified"].timestamp() * 1_000_000)
    known = int(number) if number.isdigit() else -1
    return Found(meta["path"], meta["size"], meta["e_tag"] or "", meta["version"] or "", changed_at_us, known)
