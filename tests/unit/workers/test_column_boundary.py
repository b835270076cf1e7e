"""What fails in columns goes on in rows, is counted, and is told once."""

from __future__ import annotations

import logging

import pytest

from millwheel.core.columns.fixed_sums import Unfit
from millwheel.errors import CorruptionError, RecordError
from millwheel.workers.column_boundary import FAILED, ColumnBoundary


def test_each_kind_of_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    boundary = ColumnBoundary("minutes")
    counted: list[str] = []
    for _ in range(3):
        with pytest.raises(Unfit), boundary.inside(counted.append):
            raise RuntimeError("odd")
    assert (len(counted), [record.levelno for record in caplog.records]) == (3, [logging.WARNING])
    with pytest.raises(Unfit), boundary.inside(counted.append):
        raise RecordError("about a record")
    for fatal in (CorruptionError("damaged"), KeyboardInterrupt(), OSError("away")):
        with pytest.raises(type(fatal)), boundary.inside(counted.append):
            raise fatal
    assert (len(counted), len(caplog.records)) == (3, 1)


def test_numbers_that_do_not_fit_are_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    with pytest.raises(Unfit), ColumnBoundary("minutes").inside(counted.append):
        raise Unfit
    assert (counted, caplog.records) == ([], [])


def test_a_failure_is_counted_by_its_name_and_logged_with_its_node_and_where_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[str] = []
    with pytest.raises(Unfit) as raised, ColumnBoundary("minutes").inside(counted.append):
        raise ValueError("odd")
    [record] = caplog.records
    assert counted == [FAILED]
    assert record.getMessage() == "minutes failed in columns, and goes on record by record: ValueError: odd"
    assert record.exc_info is not None
    assert record.exc_info[1] is raised.value.__cause__


def test_messages_that_name_records_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    boundary = ColumnBoundary("minutes")
    counted: list[str] = []
    for record in range(50):
        with pytest.raises(Unfit), boundary.inside(counted.append):
            raise ValueError(f"record {record}")
    assert (len(counted), len(caplog.records)) == (50, 20)
