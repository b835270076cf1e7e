"""The operations that snapshots, and journals of the create form, require of a root: names, whole
contents, and the promise that a name can be created only once.

Keys are full addresses below ``root`` ("/shared/visits/journal/w1/00000001.log",
"s3://bucket/visits/journal/w1/00000001.log"), so that errors name objects as a person finds them.
Errors are those of :mod:`os` or of :mod:`millwheel.errors`; an error is never taken for "it is
not there".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from millwheel.adapters.spaces.object_store import ObjectVersion


class ObjectSpace(Protocol):
    """Whole objects under names. For any thread. Changes are durable when a method returns."""

    root: str

    def kind(self) -> str:
        """The root's storage: the type of a file system ("ext4", "nfs4"), or the scheme of an
        object store ("s3")."""

    def prepare(self, folder: str) -> None:
        """Prepare ``folder`` so that objects can be put into it."""

    def claim(self, folder: str) -> bool:
        """Take the name of a folder, once and for ever; False when it was taken before, by any
        process. Both durably."""

    def claimed(self, folder: str) -> bool:
        """Whether the name of a folder is taken."""

    def names(self, folder: str) -> list[str]:
        """The objects and folders directly in a folder; empty if there is no such folder.

        Everything that existed during the whole call is included.
        """

    def settle(self, folder: str) -> None:
        """Make the result of :meth:`names` durable: a creator may have died before its object
        was."""

    def create(self, key: str, data: bytes, staged: str = "") -> bool:
        """Put an object there unless the name is taken; True when it is ours. Durable in either
        case. A name counts as taken even if the process that took it has deleted it since.

        ``data`` must be content that nobody else writes (a put-id in it): when the answer to a
        create was lost, an existing object is compared, and counts as ours when it is the same.
        ``staged`` is a name for a left-over. Raises UnavailableError when the outcome cannot be
        determined; a second call with the same content settles it.
        """

    def get(self, key: str) -> bytes:
        """The content. Raises FileNotFoundError."""

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""

    def put_file(self, source: str, key: str, *, immutable: bool) -> str:
        """A new object with the content of a local file; :meth:`settle` its folder before you rely
        on the name.

        An ``immutable`` file, which is never written to again, may be shared instead of
        copied. Returns the local file to take a checksum of: it has the bytes that count.
        """

    def share_file(self, key: str, target: str) -> bool:
        """Make ``target`` another name of an object that is never written to again; False where
        that is not possible.

        Raises FileNotFoundError when there is no such object.
        """

    def fetch_file(self, key: str, target: str) -> None:
        """A new local file with the content of an object. Raises FileNotFoundError when there is
        none."""


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """The content of an object, and the version by which it can be replaced."""

    data: bytes
    version: ObjectVersion


class ReplacingSpace(ObjectSpace, Protocol):
    """An object space that can also replace an object only as it was read."""

    def version(self, key: str) -> ObjectContent | None:
        """The current object; None if there is none."""

    def replace(self, key: str, data: bytes, version: ObjectVersion) -> ObjectVersion | None:
        """Replace this version: the new one, or None when another version is there, or none.

        ``data`` must be content that nobody else writes: after a lost answer it is read back.
        """
