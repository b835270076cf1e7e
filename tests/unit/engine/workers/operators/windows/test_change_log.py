"""Change logs in columns say what they say in rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.aggregates.families import distinct
from millwheel.core.columns.forms import windows as window_forms
from millwheel.core.columns.state import columns_to_rows
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import MIN_TIME
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.operators import key_forms
from millwheel.engine.workers.operators.windows import change_log
from millwheel.engine.workers.operators.windows.change_log import ChangeLogOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles

Row = dict[str, Any]
HEAD = """
pipeline: bids
streams:
  bids:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 3us, max_future: null}}
    fields: {{ad: int, who: str, cost: float, size: int, at: int}}
"""
PIPELINE = (
    HEAD
    + """\
computations:
  totals:
    input: {{bids: {{key: {key}}}}}
    {option}
    aggregate:
      n: count
      cheap: {{count: {{where: "size < 3"}}}}
      spend: {{sum: cost}}
      sizes: {{sum: size}}
      most: {{max: size}}
      mean: {{mean: cost}}
      {growing}
    output: totals
sinks:
  totals: {{stdout: {{}}}}
"""
)
GROWING = """
      who: {count_distinct: who}
      costs: {count_distinct: cost, where: "size > 0"}
      different: {count_distinct: size}"""


def written(folder: Path, option: str = "", key: str = "ad", growing: str = "") -> str:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(folder=folder, option=option, key=key, growing=growing))
    return str(path)


@contextmanager
def in_rows(wanted: bool) -> Iterator[None]:
    """Within it the state of each group is in rows."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(window_forms, "_why_versions_apart", lambda *parts: "it is wanted")
        yield


def never_whole_for_long(monkeypatch: pytest.MonkeyPatch, most: int, rows_below: int = 20) -> None:
    """Groups leave the columns where they have more bytes, or after a few small bundles."""
    monkeypatch.setattr(change_log, "_MOST_BYTES", most)
    monkeypatch.setattr(key_forms, "_SMALL_BUNDLES", 2)
    monkeypatch.setattr(columns_to_rows, "PART_RECORDS", 5)
    limits = partialmethod(ShardLimits.__init__, rows_below=rows_below)
    monkeypatch.setattr(ShardLimits, "__init__", limits)


SIZES = [40, 40, *[3] * 6, 40, 3, 40, *[2] * 9, 30]
"""Of bundles: small ones among whole ones."""


@pytest.fixture
def whole_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few records a bundle has, it goes in columns."""
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, rows_below=0))


def bids(count: int, seed: int, ads: int = 12) -> list[Row]:
    rng = random.Random(seed)
    return [
        {
            "ad": rng.randrange(ads),
            "who": rng.choice("abc"),
            "cost": rng.choice([0.0, 0.1, 2.5, -7.25]),
            "size": rng.randrange(-2, 9),
            "at": rng.randrange(1000),
        }
        for _ in range(count)
    ]


def newest(rows: list[Row], *key: str) -> dict[Any, Row]:
    return {tuple(row[name] for name in key): row for row in rows}


def said(path: str, bundles: list[list[Row]], by_record: bool, *key: str) -> dict[str, Any]:
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("totals")
        assert isinstance(shard.operator, GroupedOperator)
        assert isinstance(shard.operator, ChangeLogOperator) != by_record
        for bundle in bundles:
            harness.push("bids", bundle)
        harness.finish()
        assert not harness.counters.get("failed_in_columns", 0)
        letters = [(each["stream"], each["reason"]) for each in harness.read("dead_letters")]
        return {"rows": newest(harness.read("totals"), *key), "letters": sorted(letters)}


def alike(path: str, bundles: list[list[Row]], *key: str) -> dict[str, Any]:
    """What both forms say, which is the same."""
    columns, rows = (said(path, bundles, form, *key) for form in (False, True))
    assert columns == rows
    assert json.dumps([*columns["rows"].values()]) == json.dumps(
        [rows["rows"][each] for each in columns["rows"]]
    )
    return columns


@pytest.mark.usefixtures("whole_bundles")
@pytest.mark.parametrize("growing", ["", GROWING])
@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("", "ad"),
        ("", "[who, ad]"),
        ('then: {share: "cheap / n"}', "ad"),
        ('where: "cost >= 0"', "who"),
    ],
)
def test_versions_are_those_of_the_row_form(
    tmp_path: Path, option: str, key: str, growing: str
) -> None:
    names = {"ad": ["ad"], "[who, ad]": ["who", "ad"], "who": ["who"]}[key]
    growing = growing.replace("who: {", "whose: {")
    bundles = [bids(30, seed) for seed in range(12)]
    found = alike(written(tmp_path, option, key, growing), bundles, *names)
    assert len(found["rows"]) > 2


@pytest.mark.usefixtures("whole_bundles")
@pytest.mark.parametrize("growing", ["", GROWING])
def test_keys_of_what_columns_cannot_hold_go_on_in_rows(tmp_path: Path, growing: str) -> None:
    """A float of many digits, a sum beyond 64 bits, and a record that cannot be aggregated."""
    bundles = [bids(30, seed, ads=90) for seed in range(9)]
    bundles[2][7] |= {"cost": 1e-300, "ad": 3}
    bundles[4][1] |= {"size": 2**62, "ad": 5}
    bundles[4][2] |= {"size": 2**62, "ad": 5}
    bundles[5][3] |= {"cost": None, "ad": 7}
    path = written(tmp_path, growing=growing)
    found = alike(path, bundles, "ad")
    assert found["letters"]
    with PipelineHarness(path, shards=1) as harness:
        for bundle in bundles:
            harness.push("bids", bundle)
        [shard] = harness._cluster.shards_of("totals")
        assert isinstance(shard.operator, ChangeLogOperator)
        rows = shard.operator._cells.among(list(range(90)), change_log.GLOBAL_WINDOW)
        assert 3 in rows
        assert 3 < len(rows) < 60
        assert shard.operator._groups.size()


@pytest.mark.parametrize("growing", ["", GROWING])
@pytest.mark.parametrize("most", [0, 2_000, 1 << 25])
def test_groups_leave_the_columns_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, growing: str
) -> None:
    """Small bundles send all of them to rows, and too many bytes the oldest."""
    most *= 3 if growing and most < 1 << 25 else 1
    never_whole_for_long(monkeypatch, most)
    bundles = [bids(size, seed, ads=40) for seed, size in enumerate(SIZES)]
    path = written(tmp_path, growing=growing)
    alike(path, bundles, "ad")
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("totals")
        operator = shard.operator
        assert isinstance(operator, ChangeLogOperator)
        held = []
        for bundle in bundles:
            harness.push("bids", bundle)
            rows = operator._cells.among(list(range(40)), change_log.GLOBAL_WINDOW)
            held.append((bool(operator._groups), bool(rows)))
    if most == 1 << 25:
        assert held[1] == (True, False)
        assert (False, True) in held
        assert held[-1][0]
    elif most:
        assert (True, True) in held


def in_order(sizes: list[int], ads: int) -> list[list[Row]]:
    """Bundles of which each has later records than those before it."""
    bundles = [bids(size, seed, ads) for seed, size in enumerate(sizes)]
    for number, own in enumerate(bundles):
        own.sort(key=lambda row: row["at"])
        for row in own:
            row["at"] = number * 100 + row["at"] // 10
    return bundles


@pytest.mark.parametrize("ttl", ["9us", "150us", "400us"])
@pytest.mark.parametrize("most", [0, 2_000, 1 << 25])
def test_groups_are_forgotten_as_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, ttl: str
) -> None:
    never_whole_for_long(monkeypatch, most)
    bundles = in_order(SIZES, 40)
    bundles[8][4] |= {"cost": 1e-300}
    path = written(tmp_path, f"ttl: {ttl}")
    alike(path, bundles, "ad")
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("totals")
        operator = shard.operator
        assert isinstance(operator, ChangeLogOperator)
        held = []
        for bundle in bundles:
            harness.push("bids", bundle)
            operator.validate(shard.store)
            held.append(sum(operator.kept().values()))
        assert held[1]
        harness.finish()
        assert not operator.kept()
        assert not operator._groups


@pytest.mark.usefixtures("whole_bundles")
@pytest.mark.parametrize("growing", ["", GROWING])
def test_versions_survive_crashes(tmp_path: Path, growing: str) -> None:
    path = written(tmp_path, growing=growing)
    story = in_bundles({"bids": bids(60, 4)}, 12)
    assert assert_survives_crashes(path, story, every=11) > 8


@pytest.mark.usefixtures("whole_bundles")
def test_large_sets_go_on_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And do not come back."""
    monkeypatch.setattr(distinct, "_MOST_LISTED", 8)
    bundles = [bids(30, seed, ads=9) for seed in range(6)]
    path = written(tmp_path, growing=GROWING)
    alike(path, bundles, "ad")
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("totals")
        operator = shard.operator
        assert isinstance(operator, ChangeLogOperator)
        for bundle in bundles:
            harness.push("bids", bundle)
            operator.validate(shard.store)
        rows = operator._cells.among(list(range(9)), change_log.GLOBAL_WINDOW)
        assert 0 < len(rows) < 9
        assert operator._groups.size()


@pytest.mark.usefixtures("whole_bundles")
def test_an_open_group_can_be_asked_for(tmp_path: Path) -> None:
    with PipelineHarness(written(tmp_path), shards=1) as harness:
        harness.push("bids", bids(30, 1))
        [shard] = harness._cluster.shards_of("totals")
        assert isinstance(shard.operator, ChangeLogOperator)
        assert shard.operator.open_windows(3) == [change_log.GLOBAL_WINDOW]
        assert shard.operator.open_windows(77) == []


# Records that are taken back.

BACK = (
    HEAD
    + """\
computations:
  best:
    input: {{bids: {{key: [ad, who]}}}}
    aggregate:
      n: count
      most: {{max: size}}
      paid: {{max: cost}}
      sizes: {{sum: size}}
      different: {{count_distinct: size}}
    output: best
  totals:
    input: {{best: {{key: {key}}}}}
    {option}
    aggregate:
      groups: count
      all: {{sum: n}}
      large: {{count: {{where: "most > 4"}}}}
      spend: {{sum: paid, where: "most > 4"}}
      mean: {{mean: paid}}
      spread: {{stddev: n}}
      wide: {{variance: paid}}
      sizes: {{sum: sizes}}
      different: {{sum: different}}
    output: totals
sinks:
  totals: {{stdout: {{{mode}}}}}
"""
)


def taking_back(folder: Path, option: str = "", key: str = "ad", mode: str = "") -> str:
    path = folder / "pipeline.yaml"
    path.write_text(BACK.format(folder=folder, option=option, key=key, mode=mode))
    return str(path)


def left(rows: list[Row], *key: str) -> dict[Any, Row]:
    """The rows of a change log that stand, each of which is taken back as it was."""
    standing: dict[Any, Row] = {}
    for row in rows:
        at = tuple(row[name] for name in key)
        if RETRACTION_FIELD in row:
            gone = {name: field for name, field in row.items() if name != RETRACTION_FIELD}
            assert json.dumps(standing.pop(at)) == json.dumps(gone)
        else:
            assert at not in standing
            standing[at] = row
    return standing


def told(
    path: str,
    bundles: list[list[Row]],
    by_record: bool,
    back: bool,
    key: str,
    logs: Sequence[str] = ("best", "totals"),
) -> Any:
    with in_rows(by_record), PipelineHarness(path, shards=1) as harness:
        for name in logs:
            [shard] = harness._cluster.shards_of(name)
            assert isinstance(shard.operator, ChangeLogOperator) != by_record
        for bundle in bundles:
            harness.push("bids", bundle)
        harness.finish()
        assert not harness.counters.get("failed_in_columns", 0)
        letters = [(each["stream"], each["reason"]) for each in harness.read("dead_letters")]
        rows = harness.read("totals")
        return (left if back else newest)(rows, key), sorted(letters)


def same(path: str, bundles: list[list[Row]], back: bool = False, key: str = "ad") -> Any:
    (columns, letters), rows = (told(path, bundles, form, back, key) for form in (False, True))
    assert (columns, letters) == rows
    assert json.dumps([*columns.values()]) == json.dumps([rows[0][each] for each in columns])
    return columns, letters


BACK_OPTIONS = [
    ("accumulation: accumulating", "ad", False),
    ("accumulation: retracting", "ad", True),
    ("accumulation: accumulating", "most", False),  # groups of which nothing is left
    ("accumulation: retracting", "most", True),
    ('accumulation: retracting\n    then: {share: "all / groups"}\n    having: all > 9', "n", True),
]


@pytest.mark.usefixtures("whole_bundles")
@pytest.mark.parametrize(("option", "key", "back"), BACK_OPTIONS)
def test_groups_from_which_records_are_taken_are_those_of_the_row_form(
    tmp_path: Path, option: str, key: str, back: bool
) -> None:
    path = taking_back(tmp_path, option, key, "mode: changelog" if back else "")
    found, letters = same(path, [bids(20, seed) for seed in range(14)], back, key)
    assert len(found) > 2
    assert not letters


@pytest.mark.usefixtures("whole_bundles")
def test_keys_that_columns_cannot_hold_are_taken_back_in_rows(tmp_path: Path) -> None:
    """A sum beyond 64 bits leaves it, and comes back; a float has many digits."""
    bundles = [bids(20, seed, ads=60) for seed in range(9)]
    bundles[2][1] |= {"size": 2**62, "ad": 5, "who": "a"}
    bundles[3][2] |= {"size": 2**62, "ad": 5, "who": "a"}
    bundles[4][2] |= {"size": -(2**62), "ad": 5, "who": "a"}
    bundles[5][3] |= {"cost": 1e-300, "ad": 7}
    bundles[6][3] |= {"cost": 1e-300, "ad": 8}
    path = taking_back(tmp_path, "accumulation: retracting", "ad", "mode: changelog")
    same(path, bundles, True)


@pytest.mark.parametrize("most", [0, 1_000, 1 << 25])
def test_groups_that_are_taken_back_leave_the_columns_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    never_whole_for_long(monkeypatch, most, rows_below=9)
    bundles = [bids(size, seed, ads=40) for seed, size in enumerate(SIZES)]
    for key in ("ad", "most"):
        path = taking_back(tmp_path, "accumulation: retracting", key, "mode: changelog")
        same(path, bundles, True, key)


# Aggregates of whole records.

WHOLE = (
    HEAD
    + """\
computations:
  totals:
    input: {{bids: {{key: ad}}}}
    {option}
    aggregate:
      n: count
      most: {{max_by: size}}
      newest: last_row
      first: {{first_row: {{where: "size < 3"}}}}
      best: {{top_rows: [cost desc, who], k: 3, rank: place}}
    output: totals
sinks:
  totals: {{stdout: {{{mode}}}}}
"""
)


def keeping(folder: Path, option: str = "", mode: str = "") -> str:
    path = folder / "pipeline.yaml"
    path.write_text(WHOLE.format(folder=folder, option=option, mode=mode))
    return str(path)


def with_odd_records(bundles: list[list[Row]]) -> list[list[Row]]:
    """One cannot be ordered, one has a field more, of one a field has another type."""
    bundles[2][3] |= {"cost": None, "ad": 3}
    bundles[4][1] |= {"more": [1, {"a": None}], "ad": 5}
    bundles[5][2] |= {"who": 7, "ad": 7}
    return bundles


@pytest.mark.usefixtures("whole_bundles")
@pytest.mark.parametrize("option", ["", 'then: {dear: "best[0].cost"}'])
def test_whole_records_are_those_of_the_row_form(tmp_path: Path, option: str) -> None:
    path = keeping(tmp_path, option)
    found = alike(path, with_odd_records([bids(30, seed, ads=40) for seed in range(8)]), "ad")
    assert len(found["rows"]) > 20
    assert found["letters"]
    with PipelineHarness(path, shards=1) as harness:
        for seed in range(4):
            harness.push("bids", bids(30, seed))
        [shard] = harness._cluster.shards_of("totals")
        assert isinstance(shard.operator, ChangeLogOperator)
        assert not shard.operator._cells.among(list(range(40)), change_log.GLOBAL_WINDOW)
        assert shard.operator._groups.size()


@pytest.mark.parametrize("most", [0, 5_000, 1 << 25])
def test_whole_records_leave_the_columns_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    never_whole_for_long(monkeypatch, most)
    bundles = [bids(size, seed, ads=40) for seed, size in enumerate(SIZES)]
    alike(keeping(tmp_path), bundles, "ad")
    path = keeping(tmp_path, "accumulation: retracting", "mode: changelog")
    both = [told(path, bundles, form, True, "ad", ["totals"]) for form in (False, True)]
    assert both[0] == both[1]
    assert json.dumps([*both[0][0].values()]) == json.dumps([both[1][0][at] for at in both[0][0]])
    with PipelineHarness(path, shards=1) as harness:
        for bundle in bundles:
            harness.push("bids", bundle)
        [shard] = harness._cluster.shards_of("totals")
        assert isinstance(shard.operator, ChangeLogOperator)
        assert bool(shard.operator._groups) == bool(most)


@pytest.mark.usefixtures("whole_bundles")
def test_whole_records_survive_crashes(tmp_path: Path) -> None:
    story = in_bundles({"bids": bids(60, 4)}, 12)
    assert assert_survives_crashes(keeping(tmp_path), story, every=11) > 8


@pytest.mark.usefixtures("whole_bundles")
def test_records_of_two_types_that_a_merge_brings_together_go_on_in_rows(tmp_path: Path) -> None:
    """The next owner of both is asked and goes on with them."""
    path = keeping(tmp_path)
    with PipelineHarness(path, shards=1) as harness:
        harness.push("bids", bids(30, 1))
        [shard] = harness._cluster.shards_of("totals")
        operator = shard.operator
        assert isinstance(operator, ChangeLogOperator)
        before = operator.kept()
        [segment] = operator._groups.segments()
        retyped = pl.col("a1").list.eval(
            pl.element().struct.with_fields(pl.field("row").struct.with_fields(b=pl.lit("")))
        )
        operator._groups.put(segment.groups.head(2).with_columns(retyped), 0, MIN_TIME)
        operator._groups.cut(segment, segment.groups.tail(-2))
        operator._of_others = len(operator._groups.by_type()) > 1
        assert operator._of_others
        assert len(operator.kept()) == len(before)
        harness.push("bids", bids(30, 2))
        assert not operator._of_others
        harness.finish()
        found = newest(harness.read("totals"), "ad")
    wanted = said(path, [bids(30, 1), bids(30, 2)], True, "ad")["rows"]
    assert {at: row["best"] for at, row in found.items()} == {
        at: row["best"] for at, row in wanted.items()
    }
