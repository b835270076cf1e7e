"""Objects of a bucket as a source. A partition is an object; its name is its key relative to the
common folder of all patterns."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import xxhash

from millwheel.adapters.spaces.object_address import ObjectAddress, address_of
from millwheel.adapters.spaces.object_store import ObjectStore, StoredObject, is_odd
from millwheel.connect.built_in import other_system
from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.connect.sources.files.object_input import ObjectBytes
from millwheel.connect.sources.files.object_reader import ObjectReader
from millwheel.connect.sources.files.patterns import dealt
from millwheel.errors import ExhaustedError, SetupError, UnavailableError

log = logging.getLogger(__name__)
LIST_S = 5.0
"""Between listings of a followed source (s): a listing costs one request per 1,000 objects."""
_FIRST_LIST_S = 2.0  # for the first listing; then the source counts as out of reach for now
# of the process; starts when it is used
_LISTING = ThreadPoolExecutor(max_workers=2, thread_name_prefix="listing")
WHOLE_LISTING_S = 600.0
"""With rising names, everything is listed again after this time (s), in case a name appeared out of
order."""
_MAGIC = re.compile(r"[*?\[]")
OpenVersion = Callable[[str, ObjectBytes], Reader]
"""The name of an object and its bytes -> a reader."""


class ObjectsSource(Source):
    """All objects that match. ``rising``: new objects have greater names than old ones, so a
    listing may start after the last name. A followed source is listed by another thread, because a
    worker's loop must not block."""

    poll_us = 20_000

    def __init__(
        self,
        store: ObjectStore,
        patterns: Sequence[str],
        follow: bool,
        rising: bool,
        open_version: OpenVersion,
        now_s: Callable[[], float] = time.monotonic,
        submit: Callable[
            [Callable[[], dict[str, StoredObject]]], Future[dict[str, StoredObject]]
        ] = _LISTING.submit,
    ) -> None:
        self.bounded = not follow
        self._now_s = now_s
        self._submit = submit
        self._begun_at = -LIST_S
        self._listing: Future[dict[str, StoredObject]] | None = None
        self._latest: dict[str, StoredObject] | None = None
        self._store = store
        self._listings = [
            _Listing(store, pattern, follow, rising and follow, now_s) for pattern in patterns
        ]
        self._top = _shared([listing.folder for listing in self._listings])
        self._open_version = open_version

    def check(self) -> None:
        """Check credentials and bucket; there may be no object yet. Raises SetupError when they do
        not work."""
        try:
            self._found()
        except UnavailableError as ex:
            raise SetupError(str(ex)) from ex

    def partitions(self) -> Sequence[Partition]:
        """Raises SetupError when a bounded source has no object."""
        try:
            objects = self._found() if self.bounded else self._listed()
        except UnavailableError as ex:
            if self.bounded:
                raise SetupError(str(ex)) from ex
            raise ExhaustedError(str(ex)) from ex
        named = {key[len(self._top) :]: each for key, each in objects.items()}
        if self.bounded:
            if not named:
                patterns = " or ".join(
                    f"{self._store.address.top}/{listing.pattern}" for listing in self._listings
                )
                raise SetupError(
                    f"no object matches {patterns}; check the path of the source (** descends into"
                    " folders), or write follow: true to wait for objects"
                )
            return [
                Partition(name)
                for name in dealt({name: each.size for name, each in sorted(named.items())})
            ]
        return [
            Partition(name, _version(each), each.changed_at_us)
            for name, each in sorted(named.items())
        ]

    def fits(self, name: str) -> bool:
        """See :class:`millwheel.connect.sources.base.Source`."""
        return any(listing.fits(f"{self._top}{name}") for listing in self._listings)

    def open(self, partition: Partition) -> Reader:
        key = f"{self._top}{partition.name}"
        return ObjectReader(
            self._store, key, not self.bounded, lambda content: self._open_version(key, content)
        )

    def _listed(self) -> dict[str, StoredObject]:
        """The last finished listing; starts another one when it is due."""
        if self._listing is None and self._now_s() >= self._begun_at + LIST_S:
            self._begun_at = self._now_s()
            self._listing = self._submit(self._found)
        if self._listing is not None and not self._listing.done():
            wait([self._listing], _FIRST_LIST_S if self._latest is None else 0.0)
        if self._listing is not None and self._listing.done():
            finished, self._listing = self._listing, None
            self._latest = finished.result()
        if self._latest is None:
            raise ExhaustedError(
                f"{self._store.address.top} has not been listed yet; event time waits for it"
            )
        return self._latest

    def _found(self) -> dict[str, StoredObject]:
        by_key: dict[str, StoredObject] = {}
        for listing in self._listings:
            by_key |= listing.look()
        return by_key


class _Listing:
    """The objects that match one pattern. Any thread may use it; all shards of a worker share
    it."""

    def __init__(
        self,
        store: ObjectStore,
        pattern: str,
        follows: bool,
        rising: bool,
        now_s: Callable[[], float],
    ) -> None:
        self.pattern = pattern
        self._odd = _OddKeys(f"{store.address.top}/{pattern}", follows)
        magic = _MAGIC.search(pattern)
        literal = pattern if magic is None else pattern[: magic.start()]
        self.folder = literal[: literal.rfind("/") + 1]
        self._prefix = literal
        self._matches = _matcher(pattern) if magic else _in_folder(pattern)
        self._store = store
        self._rising = rising
        self._now_s = now_s
        self._whole_at = -WHOLE_LISTING_S
        self._objects: dict[str, StoredObject] = {}
        self._last = ""
        self._lock = threading.Lock()

    def fits(self, key: str) -> bool:
        """Whether an object with this key matches, if there is one."""
        return self._matches(key)

    def look(self) -> dict[str, StoredObject]:
        with self._lock:
            if not self._rising or self._now_s() >= self._whole_at + WHOLE_LISTING_S:
                self._objects, self._last, self._whole_at = {}, "", self._now_s()
            for listed in self._store.list(self._prefix, self._last):
                self._last = max(self._last, listed.key)
                if listed.size and self._matches(listed.key) and not self._odd.refuse(listed.key):
                    self._objects[listed.key] = listed
            return dict(self._objects)


class _OddKeys:
    """Keys that match a pattern and that the client cannot read: an error where the source is
    bounded, else a line of the log for each."""

    def __init__(self, where: str, follows: bool) -> None:
        self._where = where
        self._follows = follows
        self._warned: set[str] = set()

    def refuse(self, key: str) -> bool:
        """True for such a key. Raises SetupError if the source is bounded."""
        if not is_odd(key):
            return False
        problem = (
            f"the key {key!r} of {self._where} cannot be read under such a name: rename it, or"
            " narrow the path"
        )
        if not self._follows:
            raise SetupError(problem)
        if key not in self._warned:
            self._warned.add(key)
            log.warning("%s", problem)
        return True


def addresses(paths: Sequence[str]) -> list[ObjectAddress]:
    """The addresses in the paths of a source; [] when all are paths of this machine. Raises
    ValueError for a mixture."""
    parsed = [address_of(path, other_system) for path in paths]
    bucket_addresses = [address for address in parsed if address is not None]
    if bucket_addresses and (
        len(bucket_addresses) < len(parsed)
        or len({address.top for address in bucket_addresses}) > 1
    ):
        raise ValueError(
            "option 'path' mixes buckets or folders; a source reads one bucket, or folders of this"
            " machine"
        )
    return bucket_addresses


def _version(listed: StoredObject) -> tuple[int, ...]:
    return listed.size, xxhash.xxh3_64_intdigest(listed.version.tag.encode())


def _shared(folders: Sequence[str]) -> str:
    """The folder above all of them."""
    parts = [folder.split("/")[:-1] for folder in folders]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "".join(f"{part}/" for part in shared)


def _in_folder(key: str) -> Callable[[str], bool]:
    """The object itself; of a folder, the visible ones in it (no ``_SUCCESS`` either)."""
    folder = f"{key}/" if key else ""

    def matches(object_key: str) -> bool:
        rest = object_key[len(folder) :]
        return object_key == key or (
            object_key.startswith(folder) and rest != "" and "/" not in rest and rest[0] not in "._"
        )

    return matches


def _matcher(pattern: str) -> Callable[[str], bool]:
    """As a shell does: ``*`` and ``?`` do not match a slash nor a leading dot, ``**/`` matches any
    visible folders."""
    text = "".join(map(_one, re.findall(r"\*\*/|\*|\?|\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)))
    compiled = re.compile(text, re.DOTALL)

    def matches(object_key: str) -> bool:
        if object_key == pattern:
            return True  # a key may have the letters of a pattern
        return compiled.fullmatch(object_key) is not None and not any(
            part.startswith(".")
            for part in object_key.split("/")
            if f"{part}/" not in f"{pattern}/"
        )

    return matches


def _one(token: str) -> str:
    if token == "**/":
        return "(?:[^/]+/)*"
    if token in "*?":
        return "[^/]*" if token == "*" else "[^/]"
    if token.startswith("[") and len(token) > 2:
        inner = token[1:-1].replace("\\", "\\\\")
        return f"[^/{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token)
