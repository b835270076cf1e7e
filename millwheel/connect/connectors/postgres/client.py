"""Connections to PostgreSQL, and the queries that people write for them. No message contains a
password.

The library is psycopg 3, the maintained client with COPY and pipelines.
"""

from __future__ import annotations

import re
from typing import Any

from millwheel.errors import SetupError

ANSWER_S = 10
"""The timeout of a connect (s)."""
LOCK_MS = 10_000
"""How long a statement waits for a lock, for example that of a former owner which hangs in a
transaction."""
IDLE_MS = 15_000
"""The server aborts our transactions that are idle for this long: their owner hangs, and others
wait for its locks."""
_SILENCE_S = 5  # before the system asks whether the other end of a connection is still there
_SECRET = "${secret:"
_SESSION = "set timezone to 'UTC'; set datestyle to 'ISO, MDY'; set intervalstyle to 'postgres'"
"""The same text must be the same value whatever the server, the database, the role and the
environment set."""


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
    if _SECRET in dsn:  # only checked: the value is not known here
        return "PostgreSQL"
    try:
        parts = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The library's words quote the text, and thus the password.
        raise ValueError(
            "option 'dsn' is no connection string of PostgreSQL; write for example "
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
