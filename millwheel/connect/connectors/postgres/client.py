"""Connections to PostgreSQL, the queries that people write for them, and the meanings of errors, by
the classes of SQLSTATE. No message contains a password.

The library is psycopg 3, the maintained client with COPY and pipelines. The codes of errors:
https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

from millwheel.connect.connectors.external.meanings import Meaning, error_for, named, of_python
from millwheel.errors import MillwheelError, SetupError

ANSWER_S = 10
"""The timeout of a connect (s)."""
LOCK_MS = 10_000
"""The time that a statement waits for a lock, for example that of a former owner which hangs in a
transaction."""
IDLE_MS = 15_000
"""The server aborts our transactions that are idle for this long: their owner hangs, and others
wait for its locks."""
_SILENCE_S = 5  # before the system asks whether the other end of a connection is still there
_SECRET = "${secret:"
_SESSION = "set timezone to 'UTC'; set datestyle to 'ISO, MDY'; set intervalstyle to 'postgres'"
"""The same text must be the same value under any settings of the server, the database, the role and
the environment."""


def library() -> Any:
    """The ``psycopg`` module. Raises SetupError if it is not installed."""
    try:
        import psycopg
    except ImportError as ex:
        raise SetupError(
            "PostgreSQL needs the package psycopg; install it with: pip install"
            " 'millwheel-spark[postgres]'"
        ) from ex
    return psycopg


def address_of(dsn: str) -> str:
    """The server and the database in words. Raises ValueError, with a sentence, if the text is not
    a connection string."""
    psycopg = library()
    if _SECRET in dsn:  # only checked: the value is resolved elsewhere
        return "PostgreSQL"
    try:
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The library's words quote the text, and thus the password.
        raise ValueError(
            "option 'dsn' is not a connection string of PostgreSQL; write for example "
            "dsn: postgresql://user:${secret:PG_PASSWORD}@db:5432/results"
        ) from None
    host, port = (
        parts.get("host") or parts.get("hostaddr") or "localhost",
        parts.get("port") or 5432,
    )
    return f"PostgreSQL at {host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"


def connect(dsn: str) -> Any:
    """A connection on which transactions are begun explicitly, and times without a zone are UTC.
    Raises psycopg's errors."""
    psycopg = library()
    limits = f"-c lock_timeout={LOCK_MS} -c idle_in_transaction_session_timeout={IDLE_MS}"
    parameters = psycopg.conninfo.conninfo_to_dict(dsn)
    own = {
        "connect_timeout": ANSWER_S,
        "application_name": "millwheel",
        "keepalives_idle": _SILENCE_S,
        "keepalives_interval": _SILENCE_S,
        "keepalives_count": 2,
        "tcp_user_timeout": 3_000 * _SILENCE_S,
    }
    options = f"{parameters.pop('options', '')} {limits}".strip()
    connection = psycopg.connect(**{**own, **parameters, "options": options}, autocommit=True)
    try:
        connection.execute(_SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


_PARTS = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>[eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*' | "(?:""|[^"])*" |
      \$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<end>;)
    | (?P<other>\w+|.)
    """,
    re.VERBOSE | re.DOTALL,
)


def one_query(text: str) -> str:
    """A query without the semicolon at its end. Raises ValueError, with a sentence, for several
    statements or none."""
    end: int | None = None
    anything = False
    for part in _PARTS.finditer(text):
        kind = part.lastgroup
        if kind == "space":
            continue
        if kind == "end":
            end = part.start() if end is None else end
        elif end is not None:
            raise ValueError("option 'query' is more than one statement; write one select")
        else:
            anything = True
    if not anything:
        raise ValueError("option 'query' has no statement; write one select")
    return text[:end]


_BY_CLASS = MappingProxyType(
    {
        Meaning.ABSENT: "08 25 40 53 57 58 72",
        Meaning.ROWS: "09 10 21 22 23 27 2F 38 39 44 54 P0",
        Meaning.MEND: "03 0A 0B 0F 0L 0P 0Z 20 24 26 28 2B 2D 34 36 3B 3D 3F 42 55 F0 HV",
    }
)
"""ABSENT: connections, read-only standbys, deadlocks, resources, shutdowns, disks. ROWS: values,
constraints, checks of views, errors raised by triggers, sizes. MEND: names, permissions, settings,
features that the table or the server lacks. XX, an internal error of the server, is in no class."""
_BY_CODE = MappingProxyType(
    {"40002": Meaning.ROWS, "55P03": Meaning.ABSENT, "55006": Meaning.ABSENT}
)
"""Codes with another meaning than their class: a constraint, and objects that others hold for a
while."""
_CLASSES = MappingProxyType(
    {name: meaning for meaning, names in _BY_CLASS.items() for name in names.split()}
)
_OF_CLIENT = (
    ("OperationalError", Meaning.ABSENT),
    ("InterfaceError", Meaning.ABSENT),
    ("DataError", Meaning.ROWS),
    ("ProgrammingError", Meaning.ROWS),
    ("NotSupportedError", Meaning.ROWS),
)
"""Errors without a code: the client has lost the connection, or cannot convert a value."""
_NO_ENTRY = re.compile(
    r"authentication failed|no pg_hba\.conf entry|(database|role) \".*\" does not exist"
)
"""For a refused connection the client gives only words."""


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of an error of the client; for other errors that of their Python class."""
    if not isinstance(error, library().Error):
        return of_python(error)
    database_error: Any = error
    if code := database_error.sqlstate:
        return _BY_CODE.get(code) or _CLASSES.get(code[:2], Meaning.UNKNOWN)
    if _NO_ENTRY.search(str(error)):
        return Meaning.MEND
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((meaning for name, meaning in _OF_CLIENT if name in names), Meaning.UNKNOWN)


def words_of(error: BaseException) -> str:
    """The words of the server, or of the client, in one line."""
    if not isinstance(error, library().Error):
        return named(error)
    database_error: Any = error
    diagnosis = database_error.diag
    primary, detail = diagnosis.message_primary or str(error), diagnosis.message_detail
    text = f"{primary}. {detail}" if detail else primary
    return re.sub(r"\s+", " ", text).strip() or type(error).__name__


def in_words(error: BaseException, where: str) -> MillwheelError:
    """Our error; see :func:`.meanings.error_for`. Errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    return error_for(meaning_of(error), where, words_of(error))


def unreachable(error: BaseException, where: str) -> SetupError:
    """The error of a failed connection before the run has begun."""
    return SetupError(
        f"{where} cannot be used: {words_of(error)}. Check the option 'dsn': host, port, database,"
        " user and password"
    )
