from __future__ import annotations

import builtins
from typing import Any

import psycopg
import pytest

from millwheel.connectors.postgres import client
from millwheel.errors import SetupError, UnavailableError


@pytest.mark.parametrize(
    ("error", "row", "kind"),
    [
        (psycopg.errors.CheckViolation, True, UnavailableError),
        (psycopg.errors.NumericValueOutOfRange, True, UnavailableError),
        (psycopg.errors.RaiseException, True, UnavailableError),
        (psycopg.errors.UndefinedColumn, False, SetupError),
        (psycopg.errors.InsufficientPrivilege, False, SetupError),
        (psycopg.errors.DeadlockDetected, False, UnavailableError),
        (psycopg.errors.AdminShutdown, False, UnavailableError),
        (psycopg.errors.DiskFull, False, UnavailableError),
        (psycopg.errors.LockNotAvailable, False, UnavailableError),
        (psycopg.errors.ReadOnlySqlTransaction, False, UnavailableError),
        (psycopg.OperationalError, False, UnavailableError),
    ],
)
def test_an_error_is_that_of_a_row_or_to_be_mended_or_tried_again(error: Any, row: bool, kind: type[Exception]) -> None:
    made = error("words of\n  the server")
    assert client.refuses_row(made) == row
    told = client.in_words(made, "PostgreSQL at db")
    assert type(told) is kind
    assert "PostgreSQL at db: words of the server" in str(told)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def absent(name: str, *words: Any, **named: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return plain(name, *words, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[postgres\]'"):
        client.library()
