"""The contract of a table for its committer: a read of the newest version, and a commit that
succeeds only if no other commit came between; and the meanings of the errors of table libraries.

deltalake raises few classes, and its object store only OSError, so their words decide. pyiceberg
has classes of its own, and passes on those of its catalogs' clients.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from millwheel.connect.connectors.external.meanings import (
    Meaning,
    error_for,
    is_of_client,
    of_python,
)
from millwheel.connect.connectors.external.target import NOTHING_YET
from millwheel.errors import MillwheelError


@dataclass(frozen=True, slots=True)
class TableMark:
    """A shard's note in the table: the number of its last batch, and the lease token of its
    owner."""

    number: int = NOTHING_YET
    token: int = 0


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one commit. ``add`` are rows. ``remove`` has the identities of rows that are
    removed first."""

    marks: Mapping[str, TableMark]
    add: pa.Table
    remove: pa.Table | None = None


class TableConflictError(MillwheelError):
    """Another writer has committed since this version was read. Nothing was written."""


class TableVersion(ABC):
    """The table as it was at one moment."""

    schema: pa.Schema

    @abstractmethod
    def mark(self, name: str) -> TableMark:
        """The note of a shard."""

    @abstractmethod
    def commit(self, change: TableChange) -> None:
        """Make the change in one commit of the table, if this is still its newest version. Raises
        TableConflictError if it is not, UnavailableError if the outcome is unknown."""

    @abstractmethod
    def standing(self, by: Sequence[str], keys: pa.Table) -> list[dict[str, Any]]:
        """The rows of these identities."""


class LakeTable(ABC):
    """A table by its address. ``where`` names it for people; ``identity`` holds everything that
    distinguishes it: its name, catalog, store and credentials."""

    where: str
    identity: tuple[Hashable, ...]

    @abstractmethod
    def look(self) -> TableVersion:
        """The newest version. Raises SetupError when the table does not exist, UnavailableError
        when the store does not answer."""

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Make the table; it may be there by now."""


_REASON_LETTERS = 300  # characters of an error of a library that are shown
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BY_NAME = MappingProxyType(
    {
        Meaning.ABSENT: (
            "CommitStateUnknownException ServerError ServiceUnavailableError TooManyRequestsError"
            " WaitingForLockException GenericDynamoDbError AuthorizationExpiredError"
            " TTransportException EndpointConnectionError ConnectTimeoutError ReadTimeoutError"
            " ConnectTimeout ReadTimeout Timeout ConnectionError ConnectionClosedError"
            " OperationalError DisconnectionError InterfaceError"
        ),
        Meaning.MEND: (
            "PermissionError SchemaMismatchError DeltaProtocolError TableNotFoundError"
            " NoSuchTableError NoSuchIcebergTableError NoSuchNamespaceError NotInstalledError"
            " UnauthorizedError ForbiddenError OAuthError SignError NoCredentialsError"
            " ProgrammingError SSLError"
        ),
        Meaning.ROWS: "ArrowException",
    }
)
_MEANINGS = MappingProxyType(
    {name: meaning for meaning, names in _BY_NAME.items() for name in names.split()}
)
_WORDS = (
    (
        re.compile(r"failed validation check|Invariant violation|Check constraint", re.IGNORECASE),
        Meaning.ROWS,
    ),
    (
        re.compile(
            r"\b(401|403)\b|AccessDenied|Access"
            r" ?Denied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|"
            r"ACCESS_DENIED|NO_SUCH_BUCKET|bucket does not exist|Unable to parse|Unknown scheme",
        ),
        Meaning.MEND,
    ),
    (
        re.compile(
            r"Generic \w+ error|AWS Error|HTTP error|object store|timed? ?out|Connection",
            re.IGNORECASE,
        ),
        Meaning.ABSENT,
    ),
)
"""The words of errors whose class means nothing, in this order."""


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of an error of a table's library."""
    for kind in type(error).__mro__:
        if kind.__name__ in _MEANINGS:
            return _MEANINGS[kind.__name__]
    if isinstance(error, Exception) and not (isinstance(error, OSError) and error.errno):
        for words, meaning in _WORDS:
            if words.search(str(error)):
                return meaning
    return of_python(error)


def reason(error: BaseException) -> str:
    """The words of an error in one line, without its origin within the library."""
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    return " ".join(text.split())[:_REASON_LETTERS]


def in_words(error: BaseException, where: str) -> MillwheelError:
    """Our error; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    meaning = meaning_of(error)
    words = f"{type(error).__name__}: {reason(error)}"
    return error_for(
        meaning, where, f"it does not answer: {words}" if meaning is Meaning.ABSENT else words
    )


def failed(error: BaseException, where: str) -> BaseException:
    """The error to raise for one of a library; an error that ends the thread stays as it is."""
    return in_words(error, where) if is_of_client(error) else error
