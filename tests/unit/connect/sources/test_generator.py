"""The generator: the same records from any position, at the rate, without bursts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.connect.sources.base import Partition, Reader
from millwheel.connect.sources.generator import build_generator
from millwheel.core.model.times import SECOND
from millwheel.errors import PipelineError
from tests.fakes.reading import read_on


class Clock:
    def __init__(self) -> None:
        self.now_us = 5 * SECOND

    def __call__(self) -> int:
        return self.now_us


def reader(partition: int = 0, clock: Clock | None = None, **options: Any) -> Reader:
    return build_generator(options, "/", None, clock or Clock()).open(Partition(str(partition)))


@given(st.integers(0, 5_000), st.integers(100, 5_000))
@settings(deadline=None, max_examples=20)
def test_reading_again_from_any_position_gives_the_rest(position: int, size: int) -> None:
    whole = read_on(reader(rate=0, count=5_000, seed=3))
    assert (
        read_on(reader(rate=0, count=5_000, seed=3), position, size).records
        == whole.records[position:]
    )


def test_a_record_has_an_id_a_key_a_value_and_a_time_that_advances_at_the_rate() -> None:
    values = read_on(
        reader(1, rate=10, count=200, keys=5, partitions=2, start="2026-01-01T00:00:00Z")
    ).values
    assert values == []
    clock = Clock()
    paced = reader(1, clock, rate=10, count=200, keys=5, partitions=2, start="2026-01-01T00:00:00Z")
    paced.read(0, 10)
    clock.now_us += SECOND
    values = paced.read(0, 10).values
    assert len({value["id"] for value in values}) == 5
    assert all(0 <= value["key"] < 5 and 0 <= value["value"] < 1 for value in values)
    assert [value["ts"] - 1767225600 * SECOND for value in values] == [
        0,
        200_000,
        400_000,
        600_000,
        800_000,
    ]


def test_partitions_share_the_count_and_differ() -> None:
    source = build_generator({"rate": 0, "count": 10, "partitions": 3}, "/")
    assert source.bounded
    every = [read_on(source.open(partition)).values for partition in source.partitions()]
    assert [len(values) for values in every] == [4, 3, 3]
    assert len({value["id"] for values in every for value in values}) == 10
    assert len({value["value"] for values in every for value in values}) == 10


def test_without_a_count_it_never_ends() -> None:
    source = build_generator({"rate": 0}, "/")
    assert not source.bounded
    chunk = source.open(Partition("0")).read(10**12, 50)
    assert (len(chunk), chunk.finished) == (50, False)


def test_the_rate_is_kept_by_the_clock_and_goes_on_after_a_restart_without_a_burst() -> None:
    clock = Clock()
    paced = reader(clock=clock, rate=1000)
    assert len(paced.read(0, 500)) == 0
    clock.now_us += SECOND // 10
    assert len(paced.read(0, 500)) == 100
    assert len(paced.read(100, 500)) == 0
    again = reader(clock=clock, rate=1000)
    assert len(again.read(100, 500)) == 0
    clock.now_us += SECOND // 100
    assert len(again.read(100, 500)) == 10


def test_it_says_when_nothing_more_is_due_for_now() -> None:
    clock = Clock()
    paced = reader(0, clock, rate=10)
    paced.read(0, 10)
    clock.now_us += SECOND
    assert not paced.read(0, 5).caught_up
    assert paced.read(5, 50).caught_up


def test_what_was_not_taken_for_long_is_owed_for_a_second_at_most() -> None:
    clock = Clock()
    paced = reader(clock=clock, rate=1000)
    paced.read(0, 1)
    clock.now_us += 60 * SECOND
    assert len(paced.read(0, 5000)) <= 5000
    position, taken = 5000, 0
    while chunk := len(paced.read(position, 5000)):
        position, taken = position + chunk, taken + chunk
    assert taken <= 1000


def test_a_factory_of_ones_own_makes_the_values(tmp_path: Path) -> None:
    (tmp_path / "made_up_orders.py").write_text(
        "def order(index, partition):\n    return {'n': index, 'p': partition}\n"
    )

    class Order(msgspec.Struct):
        n: int
        p: int

    options = {"rate": 0, "count": 4, "partitions": 2, "factory": "made_up_orders:order"}
    source = build_generator(options, str(tmp_path))
    assert read_on(source.open(Partition("1"))).records == [
        (1, {"n": 0, "p": 1}),
        (2, {"n": 1, "p": 1}),
    ]
    typed = build_generator(options, str(tmp_path), Order)
    assert read_on(typed.open(Partition("1"))).values == [Order(0, 1), Order(1, 1)]
    with pytest.raises(PipelineError, match="nothing"):
        build_generator({"factory": "nothing:here"}, str(tmp_path)).open(Partition("0"))


def test_a_record_that_does_not_fit_the_schema_says_which_field(tmp_path: Path) -> None:
    class Number(msgspec.Struct):
        id: int

    source = build_generator({"count": 2, "rate": 0}, str(tmp_path), Number)
    chunk = source.open(Partition("0")).read(0, 2)
    assert [reject.reason for reject in chunk.rejects] == [
        "the record does not fit the stream's schema: Expected `int`, got `str` - at `$.id`"
    ] * 2


def test_a_factory_that_fails_rejects_its_record_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "made_up_failures.py").write_text(
        "def make(index, partition):\n    return 6 // (2 - index)\n"
    )
    source = build_generator(
        {"rate": 0, "count": 4, "factory": "made_up_failures:make"}, str(tmp_path)
    )
    found = read_on(source.open(Partition("0")))
    assert found.records == [(1, 3), (2, 6), (4, -6)]
    assert [(reject.position, reject.raw) for reject in found.rejects] == [(3, "index 2")]
    assert "ZeroDivisionError" in found.rejects[0].reason


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rat": 5}, "has no option 'rat'; did you mean 'rate'?"),
        ({"rate": "fast"}, "option 'rate': expected float, got str; write for example rate: 5000"),
        ({"rate": -1}, "option 'rate' is -1"),
        ({"count": -1}, "option 'count' is -1"),
        ({"keys": 0}, "option 'keys' is 0; write a number from 1"),
        ({"partitions": 0}, "option 'partitions' is 0"),
        ({"factory": "module"}, "option 'factory' is 'module'; write module:function"),
        ({"start": "yesterday"}, "option 'start' is 'yesterday'; write an ISO 8601 time"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_fix(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="option") as raised:
        build_generator(options, "/")
    assert problem in str(raised.value)
