"""Partitioned paths of records."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.files.paths import NONE, Partitioning
from millwheel.connect.sinks.result_rows import records_of
from millwheel.core.columns.batch import ColumnBatch
from millwheel.errors import RecordError

NOON = 1_767_182_400_000_000  # 2025-12-31T12:00:00Z


@pytest.mark.parametrize(
    ("parts", "value", "folder"),
    [
        (["country"], {"country": "DE"}, "country=DE"),
        (["day(at)", "country"], {"at": NOON, "country": "DE"}, "day=2025-12-31/country=DE"),
        (["hour(at + 1000000 * 3600)"], {"at": NOON}, "hour=2025-12-31-13"),
        (["month(at)"], {"at": -1}, "month=1969-12"),
        (["year(at)"], {"at": NOON}, "year=2025"),
        ([{"place": "upper(city)"}], {"city": "ulm"}, "place=ULM"),
        ([{"at": "day(at)"}], {"at": NOON}, "at=2025-12-31"),
        (["n"], {"n": 7}, "n=7"),
        (["flag"], {"flag": True}, "flag=true"),
        (["country"], {"country": None}, f"country={NONE}"),
        (["day(at)"], {"at": None}, f"day={NONE}"),
        (["path"], {"path": "../a=b/c%"}, "path=..%2Fa%3Db%2Fc%25"),
        (["price"], {"price": Decimal("10.50")}, "price=10.50"),
    ],
)
def test_a_folder_follows_from_the_value(parts: list[Any], value: Any, folder: str) -> None:
    assert Partitioning(parts).folder(SinkRecord("k", value, 0)) == folder


@pytest.mark.parametrize(
    ("parts", "value", "words"),
    [
        (["country"], {}, "country"),
        (["day(at)"], {"at": "today"}, "needs a time in µs, but has 'today'"),
        (["day(at)"], {"at": 1 << 62}, "not a time of a calendar"),
        (["tags"], {"tags": [1]}, "which is not a text, number or boolean"),
        (["name"], {"name": "x" * 300}, "which is not a name of a folder"),
        (["name"], {"name": ".."}, "which is not a name of a folder"),
    ],
)
def test_a_record_without_a_folder_is_an_error_in_words(
    parts: list[Any], value: Any, words: str
) -> None:
    with pytest.raises(RecordError, match=words):
        Partitioning(parts).folder(SinkRecord("k", value, 0))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["a", "a"], "names 'a' twice"),
        (["a +"], "option 'partition_by': a \\+"),
        (["a + 1"], "needs a name"),
        ([{"a b": "c"}], "is not a name"),
        ([{"a": "b", "c": "d"}], "a map of 2 entries"),
    ],
)
def test_parts_that_make_no_folders_are_refused(parts: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Partitioning(parts)


HOUR_US = 3_600_000_000
AT = [0, 5, -1, HOUR_US * 24 - 1, HOUR_US * 24, None, 1_786_000_000_123_456]
COUNTRIES = ["DE", "", "a=b/c%", "DE", None, "FR", "DE"]


def in_columns(**fields: list[Any]) -> ColumnBatch:
    count = len(next(iter(fields.values())))
    numbers = np.arange(1, count + 1)
    return ColumnBatch("s", numbers, numbers * 10, pl.Series(range(count)), pl.DataFrame(fields))


@pytest.mark.parametrize(
    "parts",
    [
        ["country"],
        ["day(at)"],
        ["hour(at)", "country"],
        [{"land": "country"}, "month(at)", "ok"],
        ["at"],
    ],
)
def test_records_in_columns_have_the_folders_that_they_have_one_by_one(parts: list[Any]) -> None:
    partitioning = Partitioning(parts)
    batch = in_columns(at=AT, country=COUNTRIES, ok=[True, False, None, True, True, True, True])
    divided = partitioning.divided(batch)
    assert partitioning.by_columns
    assert divided is not None
    found = [(each, folder) for folder, part in divided for each in records_of(part)]
    assert sorted(found, key=lambda pair: pair[0].timestamp) == [
        (each, partitioning.folder(each)) for each in records_of(batch)
    ]


@pytest.mark.parametrize(
    ("parts", "fields"),
    [
        (["country"], {"land": ["DE"]}),
        (["day(at)"], {"at": ["today"]}),
        (["day(at)"], {"at": [5, 1 << 62]}),
        (["share"], {"share": [0.5]}),
        (["name"], {"name": ["x", ".."]}),
    ],
)
def test_columns_with_records_that_have_no_folder_are_looked_at_one_by_one(
    parts: list[Any], fields: dict[str, list[Any]]
) -> None:
    assert Partitioning(parts).divided(in_columns(**fields)) is None


def test_expressions_are_computed_one_by_one() -> None:
    assert not Partitioning([{"region": "upper(country)"}]).by_columns
    assert not Partitioning(["day(at * 1000)"]).by_columns
