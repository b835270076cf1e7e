"""The errors of sinks: refused batches, and what failed system calls mean."""

from __future__ import annotations

import errno
import os

import pytest

from millwheel.connect.sinks.base import BatchRefusedError, Refused, SinkRecord
from millwheel.connect.sinks.error_messages import in_words
from millwheel.errors import SetupError, UnavailableError


def test_a_refused_batch_tells_what_is_left_of_it_and_why() -> None:
    refused = [Refused(SinkRecord("k", 1, 0), "too odd"), Refused(SinkRecord("k", 3, 0), "odder")]
    error = BatchRefusedError(refused, b"rest")
    assert (str(error), error.refused, error.committable) == (
        "too odd; odder",
        tuple(refused),
        b"rest",
    )


# error_messages.py


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.EPIPE])
def test_what_a_person_must_change_is_a_setup_error_with_the_fix(number: int) -> None:
    error = in_words(failed(number), "write results to /out")
    assert isinstance(error, SetupError)
    assert str(error).startswith(f"cannot write results to /out: {os.strerror(number)}; ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_may_pass_is_tried_again(number: int) -> None:
    assert isinstance(in_words(failed(number), "publish"), UnavailableError)


def test_an_error_without_a_number_is_told_too() -> None:
    assert (
        str(in_words(OSError("odd"), "publish"))
        == "cannot publish: odd; look at the disk and its mount"
    )
