"""The errors of table libraries, of their catalogs and of the object stores below them: what each
means.

deltalake raises few classes, and its object store only OSError, so their words decide. pyiceberg
has classes of its own, and passes on those of its catalogs' clients.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from millwheel.connect.connectors.external.meanings import Meaning, is_of_client, of_python, told
from millwheel.errors import MillwheelError

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
"""The words of errors whose class says nothing, in this order."""


def meaning_of(error: BaseException) -> Meaning:
    """What an error of a table's library means."""
    for kind in type(error).__mro__:
        if kind.__name__ in _MEANINGS:
            return _MEANINGS[kind.__name__]
    if isinstance(error, Exception) and not (isinstance(error, OSError) and error.errno):
        for words, meaning in _WORDS:
            if words.search(str(error)):
                return meaning
    return of_python(error)


def reason(error: BaseException) -> str:
    """The words of an error in one line, without where in the library it arose."""
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    return " ".join(text.split())[:_REASON_LETTERS]


def in_words(error: BaseException, where: str) -> MillwheelError:
    """The error of ours; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    meaning = meaning_of(error)
    words = f"{type(error).__name__}: {reason(error)}"
    return told(
        meaning, where, f"it does not answer: {words}" if meaning is Meaning.ABSENT else words
    )


def failed(error: BaseException, where: str) -> BaseException:
    """The error to raise for one of a library; what ends the thread stays as it is."""
    return in_words(error, where) if is_of_client(error) else error
