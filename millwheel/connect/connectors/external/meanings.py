"""The meaning of an error of another system for the rows that were sent, and its consequence: the
batch is tried again, halved, or, as a single row, refused.

Each client has a table of its own errors (``postgres/client.py``, ``kafka/client.py`` and so on).
Errors that are in no table are judged here, by their Python class.
"""

from __future__ import annotations

import errno
from enum import Enum

from millwheel.errors import MillwheelError, SetupError, UnavailableError

MOST_TRIES = 5
"""The attempts at a batch when the target answers with an error that is in no table."""


class Meaning(Enum):
    """The meaning of an error for the request that failed."""

    ABSENT = "absent"
    """It may succeed later: it is tried again for as long as that takes."""
    ROWS = "rows"
    """It never succeeds with these rows, one of which is to blame: the batch is halved until that
    row is found."""
    MEND = "mend"
    """It never succeeds until a person mends the target or its settings: the run stops."""
    UNKNOWN = "unknown"
    """Unclear: it is tried :data:`MOST_TRIES` times, then counts as ROWS if rows were sent,
    else as MEND."""


class RowToBlameError(MillwheelError):
    """Nothing of a batch was written, and never will be: an unknown row of it is to blame."""


class UnknownError(MillwheelError):
    """A client failed with an error that is in no table. The call may or may not have taken
    effect."""


_ABSENT_CODES = frozenset(
    {
        *(
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EIO,
            errno.ESTALE,
            errno.EAGAIN,
            errno.EINTR,
            errno.EBUSY,
            errno.ENOMEM,
        ),
        *(
            errno.EMFILE,
            errno.ENFILE,
            errno.ETIMEDOUT,
            errno.EHOSTUNREACH,
            errno.ENETUNREACH,
            errno.ENETDOWN,
        ),
        *(
            errno.ECONNREFUSED,
            errno.ECONNRESET,
            errno.ECONNABORTED,
            errno.EHOSTDOWN,
            errno.ENOTCONN,
            errno.ENETRESET,
        ),
    }
)
_MEND_CODES = frozenset(
    {
        *(
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.ENOENT,
            errno.ENOTDIR,
            errno.EISDIR,
            errno.ENAMETOOLONG,
        ),
        *(errno.EOPNOTSUPP, errno.ELOOP, errno.EPIPE),
    }
)
_OF_VALUES = (ValueError, TypeError, ArithmeticError, RecursionError)
"""Exceptions of libraries for a value that they cannot convert."""
_OF_LIBRARIES = frozenset({"PanicException", "CancelledError", "BaseExceptionGroup"})
"""Exceptions of libraries that are not an ``Exception``."""


def is_of_client(error: BaseException) -> bool:
    """Whether a client failed, rather than the thread being ended. Libraries in Rust panic, and
    those with an event loop are cancelled, with exceptions that are not an ``Exception``; unnoticed
    they would end the thread in silence."""
    if isinstance(error, Exception):
        return True
    return type(error).__name__ in _OF_LIBRARIES or isinstance(error, SystemExit)


def of_python(error: BaseException) -> Meaning:
    """The meaning of an error that is in no client's table."""
    if isinstance(error, UnavailableError):
        return Meaning.ABSENT
    if isinstance(error, ConnectionError | TimeoutError):
        return Meaning.ABSENT
    if isinstance(error, OSError):
        return of_code(error.errno)
    return Meaning.ROWS if isinstance(error, _OF_VALUES) else Meaning.UNKNOWN


def of_code(code: int | None) -> Meaning:
    """The meaning of an ``errno``."""
    if code in _MEND_CODES:
        return Meaning.MEND
    return Meaning.ABSENT if code in _ABSENT_CODES else Meaning.UNKNOWN


def error_for(meaning: Meaning, where: str, words: str) -> MillwheelError:
    """Our error for an error with this meaning. ``where`` names the target, ``words`` are its
    client's."""
    text = f"{where}: {words}"
    if meaning is Meaning.ABSENT:
        return UnavailableError(text)
    if meaning is Meaning.ROWS:
        return RowToBlameError(text)
    if meaning is Meaning.MEND:
        return SetupError(f"{text}. Nothing is lost; mend it and continue the run")
    return UnknownError(text)


def in_words(error: BaseException, where: str) -> MillwheelError:
    """:func:`error_for` an error in no client's table; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    return error_for(of_python(error), where, named(error))


def named(error: BaseException) -> str:
    """An exception in one line, with its class."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # of a library whose __str__ fails
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def given_up(error: MillwheelError) -> SetupError:
    """The error that ends the run once all tries are used up and no row can be to blame."""
    return SetupError(
        f"{error}. It was tried again, and is not known to pass by itself, so the run stops."
        " Nothing is lost: mend the cause and start again on the same root"
    )


MOST_WITHOUT_SUCCESS = 3
"""Single rows that fail in a row with unknown errors: after these the target is to blame, not the
rows."""


class Next(Enum):
    """The next action for a batch."""

    AGAIN = "again"
    HALVE = "halve"
    REFUSE = "refuse"
    STOP = "stop"


class Tries:
    """The failures of one shard's batches. For one thread at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._known_bad = 0
        """The number of next batches that are parts of one that failed in all its tries: they are
        not tried as often."""
        self._strange_rows = 0

    def worked(self, rows: int = 1) -> None:
        """Note that the target has taken a batch of so many rows."""
        self._count = 0
        self._known_bad = max(0, self._known_bad - 1)
        if rows:
            self._strange_rows = 0

    def answered(self) -> None:
        """Note that the target has answered, although no batch was written."""
        self._count = 0

    def failed(self, error: RowToBlameError | UnknownError, rows: int) -> Next:
        """The next action for a batch of so many rows after this error; 0 rows: only a question was
        sent."""
        strange = isinstance(error, UnknownError)
        self._count += 1
        if strange and self._count < (2 if rows and self._known_bad else MOST_TRIES):
            return Next.AGAIN
        self._count = 0
        if rows > 1:
            self._known_bad = max(0, self._known_bad - 1) + 2
            return Next.HALVE
        if not rows:
            return Next.STOP
        self._strange_rows = self._strange_rows + 1 if strange else 0
        return Next.REFUSE if self._strange_rows < MOST_WITHOUT_SUCCESS else Next.STOP
