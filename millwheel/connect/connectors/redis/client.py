"""The client of Redis for sinks and lookups: connections, and the meanings of its errors, by the
first word of a reply, or by their class."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from millwheel.connect.connectors.external.meanings import (
    Meaning,
    error_for,
    is_of_client,
    named,
    of_python,
)
from millwheel.errors import MillwheelError, SetupError

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
    """The meaning of an error of the client; for other errors that of their Python class."""
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
    """Our error; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    return error_for(meaning_of(error), where, str(error) or named(error))


T = TypeVar("T")
ANSWER_S = 10.0
"""The timeout of a reply (s). After it, the request is repeated on another connection."""
_CONNECT_S = 5.0  # for a server to accept a connection; then it counts as away
_SCHEMES = ("redis", "rediss", "unix")


def library() -> Any:
    """The module ``redis``. Raises SetupError where it is not installed."""
    try:
        import redis
    except ImportError as ex:
        raise SetupError(
            "Redis needs the package redis: pip install 'millwheel-spark[redis]'"
        ) from ex
    return redis


def check_url(url: str) -> None:
    """Raises ValueError if the text is not the address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not (parts.hostname or parts.path):
        raise ValueError(
            "option 'url' must begin with redis://, rediss:// or unix://; write"
            " redis://127.0.0.1:6379/0"
        )


def where(url: str) -> str:
    """The server's name in sentences, without a password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"Redis at {parts.path}"
    return f"Redis at {parts.hostname}:{parts.port or 6379}"


def connect(url: str) -> Any:
    """A client, which connects when first used. It does not retry by itself: we decide that."""
    redis = library()
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return redis.Redis.from_url(
        url,
        socket_timeout=ANSWER_S,
        socket_connect_timeout=_CONNECT_S,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )


def answered(where: str, function: Callable[..., T], *words: Any, **named: Any) -> T:
    """Call the client. Raises the errors of ``client.in_words``; ``where`` names the server."""
    try:
        return function(*words, **named)
    except BaseException as ex:
        if not is_of_client(ex):
            raise
        raise in_words(ex, where) from ex


def check_server(client: Any, name: str) -> None:
    """Raises SetupError unless the server admits us and is not a cluster."""
    errors = library().exceptions
    try:
        mode = client.info("cluster").get("cluster_enabled", 0)
    except errors.AuthenticationError as ex:
        raise SetupError(
            f"{name} does not let us in: {ex}. Write redis://USER:${{secret:NAME}}@HOST:PORT/0"
        ) from ex
    except errors.NoPermissionError:
        return  # some users may not ask
    except errors.RedisError as ex:
        raise SetupError(
            f"{name} does not answer: {ex}. Is it running, and is this its address?"
        ) from ex
    if mode:
        raise SetupError(
            f"{name} is a cluster: a script there writes to keys of one slot only, and rows and"
            " their number must be written together. Use a single server, with replicas if you"
            " like"
        )
