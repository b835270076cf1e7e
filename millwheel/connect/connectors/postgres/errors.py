"""The errors of PostgreSQL and of its client: what each means, by the classes of SQLSTATE.

https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

from millwheel.connect.connectors.external.meanings import Meaning, named, of_python, told
from millwheel.connect.connectors.postgres.client import library
from millwheel.errors import MillwheelError, SetupError

_BY_CLASS = MappingProxyType(
    {
        Meaning.ABSENT: "08 25 40 53 57 58 72",
        Meaning.ROWS: "09 10 21 22 23 27 2F 38 39 44 54 P0",
        Meaning.MEND: "03 0A 0B 0F 0L 0P 0Z 20 24 26 28 2B 2D 34 36 3B 3D 3F 42 55 F0 HV",
    }
)
"""ABSENT: connections, read-only standbys, deadlocks, resources, shutdowns, disks. ROWS: values,
constraints, checks of views, errors raised by triggers, sizes. MEND: names, permissions, settings,
and what the table or the server cannot do. XX, an internal error of the server, is in no class."""
_BY_CODE = MappingProxyType(
    {"40002": Meaning.ROWS, "55P03": Meaning.ABSENT, "55006": Meaning.ABSENT}
)
"""Codes that mean something else than their class: a constraint, and what somebody else holds for a
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
"""Of a refused connection the client tells only the words."""


def meaning_of(error: BaseException) -> Meaning:
    """What an error of the client means; of other errors that of their Python class."""
    if not isinstance(error, library().Error):
        return of_python(error)
    database_error: Any = error
    if code := database_error.sqlstate:
        return _BY_CODE.get(code) or _CLASSES.get(code[:2], Meaning.UNKNOWN)
    if _NO_ENTRY.search(str(error)):
        return Meaning.MEND
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((meaning for name, meaning in _OF_CLIENT if name in names), Meaning.UNKNOWN)


def says(error: BaseException) -> str:
    """The words of the server, or of the client, in one line."""
    if not isinstance(error, library().Error):
        return named(error)
    database_error: Any = error
    diagnosis = database_error.diag
    primary, detail = diagnosis.message_primary or str(error), diagnosis.message_detail
    text = f"{primary}. {detail}" if detail else primary
    return re.sub(r"\s+", " ", text).strip() or type(error).__name__


def in_words(error: BaseException, where: str) -> MillwheelError:
    """The error of ours; see :func:`.meanings.told`. Errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    return told(meaning_of(error), where, says(error))


def unreachable(error: BaseException, where: str) -> SetupError:
    """The error of a failed connection before the run has begun."""
    return SetupError(
        f"{where} cannot be used: {says(error)}. Check the option 'dsn': host, port, database, user"
        " and password"
    )
