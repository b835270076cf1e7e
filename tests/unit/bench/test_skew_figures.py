"""Figures 6 to 9: every grouping in every table, and nothing is written unless asked for."""

from __future__ import annotations

import sys

import pytest

from bench import skew, skew_figures
from bench.grouping import CONTESTANTS, WAITING, speeds_of
from millwheel.core.grouping.catalogue import GROUPINGS

SOME = ("hash", "nag", WAITING)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew_figures, "SIZES", (2, 4))
    monkeypatch.setattr(skew_figures, "CONTESTANTS", SOME)


def test_a_third_of_the_instances_is_a_fifth_slower() -> None:
    assert speeds_of("mild", 12) == (0.8,) * 4 + (1.0,) * 8
    assert speeds_of("mild", 2) == (0.8, 1.0)


def test_all_groupings_are_contestants() -> None:
    assert {*GROUPINGS} < {*CONTESTANTS}


def test_throughput_and_latency_are_there_by_parallelism_and_over_time_for_every_grouping() -> None:
    tables = skew_figures.by_parallelism("mild", 9600) | skew_figures.over_time("mild", 9600)
    assert len(tables) == 5
    for table in tables.values():
        assert [line.split(" | ")[0].strip("| ") for line in table.splitlines()[2:]] == list(SOME)


def test_tag_is_compared_with_dag_by_throughput_and_with_nag_by_both() -> None:
    lines = skew_figures.ahead("mild", 9600).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| rate, of `dag`", "| rate, of `nag`", "| latency at 40, of `nag`",
        "| latency at 80, of `nag`"
    ]  # fmt: skip
    assert all(" of 2 |" in line for line in lines[2:])


def test_the_picture_has_four_charts_of_the_five_groupings() -> None:
    svg = skew_figures.figures(9600)
    assert svg.count('font-weight="bold"') == 4
    assert svg.count("<polyline") == 20


def test_pictures_are_drawn_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench S"])
    monkeypatch.setattr(skew, "_tables", lambda records: iter([("unequal", "a table")]))
    before = skew.PICTURE.read_text(encoding="utf-8")
    assert skew.main() == 0
    assert "a table" in capsys.readouterr().out
    assert skew.PICTURE.read_text(encoding="utf-8") == before
