from __future__ import annotations

import errno

import pytest

from millwheel.connect.connectors.external.meanings import Meaning, RowToBlameError
from millwheel.connect.connectors.tables import table
from millwheel.errors import SetupError, UnavailableError


class NoSuchTableError(Exception):
    """As that of pyiceberg, whose classes are known by their names."""


class SubclassError(NoSuchTableError):
    """Of which the table knows nothing."""


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (SubclassError("timed out"), Meaning.MEND),
        (PermissionError("no"), Meaning.MEND),
        (OSError("Generic S3 error: client error (Connect)"), Meaning.ABSENT),
        (OSError("Generic S3 error: 403 Forbidden"), Meaning.MEND),
        (RuntimeError("HTTP error: 1 rows failed validation check"), Meaning.ROWS),
        (OSError(errno.EROFS, "Connection"), Meaning.MEND),
        (ValueError("odd"), Meaning.ROWS),
        (RuntimeError("odd 4030"), Meaning.UNKNOWN),
    ],
)
def test_the_class_decides_then_the_words_then_the_code(error: Exception, meaning: Meaning) -> None:
    assert table.meaning_of(error) is meaning


def test_a_reason_is_one_short_line_without_colours_and_places_in_the_library() -> None:
    error = RuntimeError("\x1b[31mno\x1b[0m\n  such  column\n\nDebug source: lib.rs:7")
    assert table.reason(error) == "no such column"
    assert len(table.reason(RuntimeError("x" * 5000))) == 300


def test_it_is_told_with_the_table_and_the_class() -> None:
    away = table.in_words(OSError("Generic S3 error"), "the table t")
    assert isinstance(away, UnavailableError)
    assert str(away) == "the table t: it does not answer: OSError: Generic S3 error"
    of_rows = table.in_words(ValueError("odd"), "the table t")
    assert isinstance(of_rows, RowToBlameError)
    assert str(of_rows) == "the table t: ValueError: odd"
    ours = SetupError("timed out")
    assert table.in_words(ours, "the table t") is ours


def test_what_ends_the_thread_is_raised_as_it_is() -> None:
    end = KeyboardInterrupt()
    assert table.failed(end, "the table t") is end
    assert isinstance(table.failed(NoSuchTableError("t"), "the table t"), SetupError)
