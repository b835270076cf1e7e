"""The errors of Redis and of its client: what each means, by the word with which a reply begins, or
by its class."""

from __future__ import annotations

from types import MappingProxyType

from millwheel.connect.connectors.external.meanings import Meaning, named, of_python, told
from millwheel.errors import MillwheelError

_BY_WORD = MappingProxyType(
    {
        Meaning.ABSENT: (
            "LOADING BUSY READONLY MASTERDOWN MISCONF OOM TRYAGAIN CLUSTERDOWN NOREPLICAS NOSCRIPT"
        ),
        Meaning.MEND: "NOAUTH WRONGPASS NOPERM MOVED ASK CROSSSLOT DENIED NOPROTO EXECABORT",
        Meaning.ROWS: "WRONGTYPE",
    }
)
"""ABSENT: it starts, is busy or a replica, or has no memory or disk left. MEND: users, permissions,
a cluster."""
_WORDS = MappingProxyType(
    {word: meaning for meaning, words in _BY_WORD.items() for word in words.split()}
)
_BY_CLASS = MappingProxyType(
    {
        "AuthenticationError": Meaning.MEND,
        "AuthenticationWrongNumberOfArgsError": Meaning.MEND,
        "NoPermissionError": Meaning.MEND,
        "MaxConnectionsError": Meaning.ABSENT,
        "BusyLoadingError": Meaning.ABSENT,
        "ReadOnlyError": Meaning.ABSENT,
        "OutOfMemoryError": Meaning.ABSENT,
        "ConnectionError": Meaning.ABSENT,
        "TimeoutError": Meaning.ABSENT,
        "DataError": Meaning.ROWS,
    }
)


def meaning_of(error: BaseException) -> Meaning:
    """What an error of the client means; of other errors that of their Python class."""
    word = str(error).partition(" ")[0]
    if isinstance(error, Exception) and word in _WORDS:
        return _WORDS[word]
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_CLASS:
            return _BY_CLASS[kind.__name__]
        if kind.__name__ == "RedisError":
            return Meaning.UNKNOWN
    return of_python(error)


def in_words(error: BaseException, where: str) -> MillwheelError:
    """The error of ours; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    return told(meaning_of(error), where, str(error) or named(error))
