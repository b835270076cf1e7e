"""Partitioned paths of records."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.files.paths import NONE, Partitioning
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
    ],
)
def test_a_folder_follows_from_the_value(parts: list[Any], value: Any, folder: str) -> None:
    assert Partitioning(parts).folder(SinkRecord("k", value, 0)) == folder


@pytest.mark.parametrize(
    ("parts", "value", "words"),
    [
        (["country"], {}, "country"),
        (["day(at)"], {"at": "today"}, "needs a time in µs, but has 'today'"),
        (["day(at)"], {"at": 1 << 62}, "no time of a calendar"),
        (["tags"], {"tags": [1]}, "which is no text, number or boolean"),
        (["name"], {"name": "x" * 300}, "which is no name of a folder"),
        (["name"], {"name": ".."}, "which is no name of a folder"),
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
        ([{"a b": "c"}], "is no name"),
        ([{"a": "b", "c": "d"}], "a map of 2 entries"),
    ],
)
def test_parts_that_make_no_folders_are_refused(parts: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Partitioning(parts)
