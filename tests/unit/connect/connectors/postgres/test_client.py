from __future__ import annotations

import builtins
from typing import Any

import psycopg
import pytest

from millwheel.connect.connectors.external.meanings import Meaning, RowToBlameError, UnknownError
from millwheel.connect.connectors.postgres import client
from millwheel.errors import SetupError, UnavailableError

TYPES = {
    Meaning.ABSENT: UnavailableError,
    Meaning.ROWS: RowToBlameError,
    Meaning.MEND: SetupError,
    Meaning.UNKNOWN: UnknownError,
}


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.errors.CheckViolation, Meaning.ROWS),
        (psycopg.errors.NumericValueOutOfRange, Meaning.ROWS),
        (psycopg.errors.RaiseException, Meaning.ROWS),
        (psycopg.errors.CardinalityViolation, Meaning.ROWS),
        (psycopg.errors.ProgramLimitExceeded, Meaning.ROWS),
        (psycopg.errors.TransactionIntegrityConstraintViolation, Meaning.ROWS),
        (psycopg.DataError, Meaning.ROWS),
        (psycopg.ProgrammingError, Meaning.ROWS),
        (UnicodeError, Meaning.ROWS),
        (psycopg.errors.UndefinedColumn, Meaning.MEND),
        (psycopg.errors.InsufficientPrivilege, Meaning.MEND),
        (psycopg.errors.ObjectNotInPrerequisiteState, Meaning.MEND),
        (psycopg.errors.InvalidPassword, Meaning.MEND),
        (psycopg.errors.InvalidCatalogName, Meaning.MEND),
        (psycopg.errors.FdwError, Meaning.MEND),
        (psycopg.errors.DeadlockDetected, Meaning.ABSENT),
        (psycopg.errors.AdminShutdown, Meaning.ABSENT),
        (psycopg.errors.DiskFull, Meaning.ABSENT),
        (psycopg.errors.LockNotAvailable, Meaning.ABSENT),
        (psycopg.errors.ObjectInUse, Meaning.ABSENT),
        (psycopg.errors.ReadOnlySqlTransaction, Meaning.ABSENT),
        (psycopg.OperationalError, Meaning.ABSENT),
        (psycopg.InterfaceError, Meaning.ABSENT),
        (ConnectionResetError, Meaning.ABSENT),
        (psycopg.errors.InternalError_, Meaning.UNKNOWN),
        (psycopg.InternalError, Meaning.UNKNOWN),
        (RuntimeError, Meaning.UNKNOWN),
    ],
)
def test_an_error_means_one_thing(error: Any, meaning: Meaning) -> None:
    made = error("words of\n  the server")
    assert client.meaning_of(made) is meaning
    told = client.in_words(made, "PostgreSQL at db")
    assert type(told) is TYPES[meaning]
    assert str(told).startswith("PostgreSQL at db: ")
    assert "words of the server" in str(told)


def test_every_class_of_the_servers_errors_is_in_the_table_but_its_internal_one() -> None:
    codes = [getattr(kind, "sqlstate", None) for kind in vars(psycopg.errors).values()]
    classes = {code[:2] for code in codes if isinstance(code, str)}
    known = {"00", "01", "02", *client._CLASSES}
    assert classes - known == {"XX"}


@pytest.mark.parametrize(
    "words",
    [
        'FATAL:  password authentication failed for user "mill"',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.7"',
        'FATAL:  database "sales" does not exist',
    ],
)
def test_a_server_that_lets_nobody_in_is_not_away(words: str) -> None:
    assert client.meaning_of(psycopg.OperationalError(words)) is Meaning.MEND


# client.py


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def absent(name: str, *words: Any, **named: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return plain(name, *words, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[postgres\]'"):
        client.library()
