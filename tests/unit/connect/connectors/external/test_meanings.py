from __future__ import annotations

import asyncio
import errno

import pytest

from millwheel.connect.connectors.external.meanings import (
    Meaning,
    RowToBlameError,
    UnknownError,
    in_words,
    is_of_client,
    named,
    of_python,
)
from millwheel.errors import MillwheelError, SetupError, UnavailableError


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "meaning", "kind"),
    [
        (ConnectionResetError("gone"), Meaning.ABSENT, UnavailableError),
        (BrokenPipeError(errno.EPIPE, "gone"), Meaning.ABSENT, UnavailableError),
        (TimeoutError("late"), Meaning.ABSENT, UnavailableError),
        (OSError(errno.ENOSPC, "full"), Meaning.ABSENT, UnavailableError),
        (PermissionError(errno.EACCES, "no"), Meaning.MEND, SetupError),
        (OSError(errno.EROFS, "read only"), Meaning.MEND, SetupError),
        (OSError("no number"), Meaning.UNKNOWN, UnknownError),
        (OverflowError("too large"), Meaning.ROWS, RowToBlameError),
        (TypeError("no text"), Meaning.ROWS, RowToBlameError),
        (KeyError("x"), Meaning.UNKNOWN, UnknownError),
    ],
)
def test_an_error_of_python_means_one_thing_and_is_told_as_such(
    error: Exception, meaning: Meaning, kind: type[MillwheelError]
) -> None:
    assert of_python(error) is meaning
    told = in_words(error, "the table sales")
    assert type(told) is kind
    assert str(told).startswith(f"the table sales: {named(error)}")


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = UnavailableError("the disk is full")
    assert in_words(ours, "the table sales") is ours
    assert of_python(ours) is Meaning.ABSENT


def test_an_error_is_one_line_even_without_a_text() -> None:
    assert named(ValueError("two\n  lines")) == "ValueError: two lines"
    assert named(ValueError()) == "ValueError"
    assert named(NoText()) == "NoText"


def test_a_client_that_panics_exits_or_is_cancelled_does_not_end_the_thread() -> None:
    panic = type("PanicException", (BaseException,), {})
    group = type("BaseExceptionGroup", (BaseException,), {})  # of tasks, one of which has panicked
    assert all(
        is_of_client(error)
        for error in (panic(), group(), SystemExit(1), asyncio.CancelledError(), KeyError())
    )
    assert not any(is_of_client(error) for error in (KeyboardInterrupt(), GeneratorExit()))
