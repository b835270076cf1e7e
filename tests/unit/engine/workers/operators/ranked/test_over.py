"""Records with aggregates of themselves and of those before them, in a shard."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.engine.workers.operators.ranked import over
from millwheel.engine.workers.operators.ranked.over import _one_map
from millwheel.errors import PipelineError
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import in_bundles

Row = dict[str, Any]
HEAD = """pipeline: p
streams:
  sales: {source: {injection: {}}, timestamp: {field: at, unit: us}, watermark: {max_delay: 5us}}
computations:
"""
OVER = """  o:
    input: {{sales: {{key: a}}}}
    over: {over}
    aggregate: {{n: count, total: {{sum: v}}, least: {{min: v}}, all: {{collect: v}},
      odd: {{count: {{where: v % 2 == 1}}}}, of: {{last_row: }}}}
    output: {output}
"""


def written(folder: Path, lookback: str, more: str = "", output: str = "rows") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "p.yaml"
    file.write_text(HEAD + OVER.format(over=lookback, output=output) + more)
    return file


def sale(a: int, at: int, v: int) -> Row:
    return {"a": a, "at": at, "v": v}


LOOKBACKS: dict[str, tuple[bool, int | None, int | None]] = {
    "{rows: 3}": (True, 3, None),
    "{rows: 1}": (True, 1, None),
    "{rows: all}": (True, None, None),
    "{rows: 4, ttl: 3us}": (True, 4, 3),
    "{range: 4us}": (False, 4, None),
    "{range: 0s}": (False, 0, None),
    "{range: all, ttl: 3us}": (False, None, 3),
}


def whole(lookback: str, rows: list[Row]) -> list[Row]:
    """What each of the rows becomes; those of one time are in order."""
    by_rows, size, ttl = LOOKBACKS[lookback]
    made = []
    for key in {row["a"] for row in rows}:
        group = sorted((row for row in rows if row["a"] == key), key=lambda row: row["at"])
        for index, row in enumerate(group):
            stop = index + 1
            while not by_rows and stop < len(group) and group[stop]["at"] == row["at"]:
                stop += 1
            some = group[:stop]
            if by_rows and size is not None:
                some = group[max(0, stop - size) : stop]
            elif size is not None:
                some = [each for each in some if each["at"] >= row["at"] - size]
            for place in range(stop - 1, 0, -1):
                if ttl is not None and group[place]["at"] - group[place - 1]["at"] > ttl:
                    some = some[-(stop - place) :]
                    break
            values = [each["v"] for each in some]
            made.append(
                {
                    **row,
                    "n": len(some),
                    "total": sum(values),
                    "least": min(values),
                    "all": values,
                    "odd": sum(v % 2 for v in values),
                    "of": some[-1]["at"],
                }
            )
    return made


def ordered(rows: list[Row]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


sales = st.builds(sale, st.integers(1, 2), st.integers(0, 20), st.integers(0, 9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("over")


@pytest.mark.parametrize("lookback", LOOKBACKS)
@settings(max_examples=15)
@given(
    st.sampled_from([(2, 2), (2, 3), (64, 512)]),
    st.lists(sales, max_size=30),
    st.integers(1, 6),
    st.lists(st.integers(0, 20), max_size=6),
)
def test_each_record_gets_the_aggregates_of_its_look_back(
    folder: Path, lookback: str, few: tuple[int, int], rows: list[Row], size: int, steps: list[int]
) -> None:
    rows.sort(key=lambda row: row["at"])  # of one time in the order of the source
    path = written(folder / lookback.strip("{}").replace(":", "_"), lookback)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(over, "_FEW", few[0])
        patch.setattr(over, "_BLOCK", few[1])
        patch.setattr(over, "_SEGMENT", few[1])
        with PipelineHarness(path) as harness:
            at = -1
            for start in range(0, len(rows), size):
                harness.push("sales", rows[start : start + size], key="f")
                if steps:
                    at = max(at, min(rows[start]["at"] - 5, steps.pop()))
                    harness.advance_watermark(max(at, 0))
                    harness.crash()
            harness.advance_watermark(1_000)
            found = harness.take("rows")
            assert harness.read("dead_letters") == []
            kept = harness.remembered()["o"]
    for row in found:
        row["of"] = row["of"]["at"]
    assert ordered(found) == ordered(whole(lookback, rows))
    if LOOKBACKS[lookback][2] is not None or not LOOKBACKS[lookback][0]:
        assert kept == {}


def test_a_record_waits_for_the_watermark_and_keeps_its_time(tmp_path: Path) -> None:
    more = "  w: {input: {over: {key: a}}, window: {tumbling: 10us}, aggregate: {n: count},"
    path = written(tmp_path, "{rows: 2}", more + " output: counts}\n", "over")
    with PipelineHarness(path) as harness:
        harness.push("sales", [sale(1, 12, 1), sale(1, 8, 2)])
        assert harness.take("over") == []
        harness.advance_watermark(12)
        assert [(row["at"], row["n"]) for row in harness.take("over")] == [(8, 1)]
        harness.advance_watermark(13)
        assert [(row["at"], row["all"]) for row in harness.take("over")] == [(12, [2, 1])]
        harness.advance_watermark(100)
        counts = [(row["window_start"], row["n"]) for row in harness.take("counts")]
        assert counts == [(0, 1), (10, 1)]


def test_behind_a_computation_the_content_decides_among_records_of_one_time(
    tmp_path: Path,
) -> None:
    text = HEAD + "  s: {input: sales, map: {a: a, v: v}, output: some}\n"
    text += OVER.format(over="{rows: all}", output="rows").replace("{sales:", "{some:")
    (tmp_path / "p.yaml").write_text(text)
    rows = [sale(1, 5, v) for v in (3, 1, 2)]
    found = []
    for some in (rows, rows[::-1]):
        with PipelineHarness(tmp_path / "p.yaml") as harness:
            for row in some:
                harness.push("sales", row)
            harness.advance_watermark(100)
            found.append([row["all"] for row in harness.take("rows")])
    assert found == [[[1], [1, 2], [1, 2, 3]]] * 2


def test_a_late_record_comes_behind_those_that_were_there(tmp_path: Path) -> None:
    again = (
        "  l: {input: {sales: {key: a}}, window: {tumbling: 1us}, allowed_lateness: 100us,"
        " aggregate: {v: {sum: v}, at: {max: at}}, output: sums}\n"
    )
    text = HEAD + again + OVER.format(over="{rows: 3}", output="rows")
    (tmp_path / "p.yaml").write_text(text.replace("{sales: {key: a}}\n", "{sums: {key: a}}\n"))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.advance_watermark(20)
        harness.push("sales", sale(1, 12, 1))
        harness.push("sales", sale(1, 7, 2))
        found = [(row["at"], row["all"]) for row in harness.take("rows")]
        assert found == [(12, [1]), (7, [1, 2])]


def test_a_record_that_cannot_be_aggregated_is_a_dead_letter_alone(tmp_path: Path) -> None:
    with PipelineHarness(written(tmp_path, "{rows: 2}")) as harness:
        harness.push("sales", [sale(1, 5, 5), {"a": 1, "at": 6, "v": None}, sale(1, 7, 7)])
        harness.advance_watermark(100)
        (letter,) = harness.read("dead_letters")
        assert letter["value"]["at"] == 6
        assert "over failed 3 times on this record" in letter["reason"]
        assert [row["all"] for row in harness.read("rows")] == [[5], [5, 7]]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("over", "wrong"),
    [
        ("{rows: 2}", [2, 4]),
        ("{range: 1us}", [2, 4]),
        ("{rows: all}", [2]),
        ("{range: all}", [2]),
    ],
)
def test_a_record_whose_look_back_has_no_result_is_a_dead_letter_alone(
    tmp_path: Path, over: str, wrong: list[int], together: bool
) -> None:
    rows = [{"a": 1, "at": at, "v": v} for at, v in enumerate([1.5, 1.5e308, 1.5e308, -1.5e308])]
    rows += [{"a": 1, "at": 4, "v": -1.5e308}, {"a": 1, "at": 5, "v": 1.5}]
    with PipelineHarness(written(tmp_path, over)) as harness:
        for each in [rows] if together else rows:
            harness.push("sales", each)
            if not together:
                harness.advance_watermark(each["at"] + 1)
        harness.advance_watermark(100)
        letters = harness.read("dead_letters")
        assert [each["value"]["at"] for each in letters] == wrong
        assert "over: RecordError: the sum has left the range" in letters[0]["reason"]
        assert [row["at"] for row in harness.read("rows")] == [
            at for at in range(6) if at not in wrong
        ]
        assert harness.counters["dead_letters"] == len(wrong)


OWN = """
from millwheel import Aggregator

class Inverse(Aggregator):
    def create(self): return 0.0
    def add(self, acc, value, timestamp): return acc + 1 / value
    def merge(self, acc, other): return acc + other
    def result(self, acc): return acc
"""


@pytest.mark.parametrize(
    ("over", "right"), [("{rows: 2}", [0, 1, 4]), ("{rows: all}", [0, 1, 3, 4])]
)
def test_what_an_aggregate_of_the_users_raises_concerns_its_look_backs_alone(
    tmp_path: Path, over: str, right: list[int]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    text = HEAD + OVER.format(over=over, output="rows")
    (tmp_path / "p.yaml").write_text(text.replace("{min: v}", '{"own:Inverse": v}'))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("sales", [sale(1, at, v) for at, v in enumerate([1, 2, 0, 4, 5])])
        harness.advance_watermark(100)
        assert [row["at"] for row in harness.read("rows")] == right
        letters = harness.read("dead_letters")
        assert {each["value"]["at"] for each in letters} == {*range(5)} - {*right}
        assert letters[0]["reason"].startswith("over: ZeroDivisionError: ")


ODD = """
from millwheel import Aggregator


class Odd(Aggregator):
    def create(self):
        return []

    def add(self, acc, value, timestamp):
        return [*acc, object() if value == 7 else value]

    def merge(self, acc, other):
        return acc + other

    def result(self, acc):
        return chr(0xD800) if 2 in acc else len(acc)
"""


@pytest.mark.parametrize(
    ("over", "right"), [("{rows: 1}", [0, 1, 3, 4]), ("{rows: all}", [0, 1]), ("{range: 0s}", None)]
)
def test_an_aggregate_that_cannot_be_carried_costs_its_records_alone(
    tmp_path: Path, over: str, right: list[int] | None
) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    text = HEAD + OVER.format(over=over, output="rows")
    (tmp_path / "p.yaml").write_text(text.replace("{min: v}", '{"odd:Odd": v}'))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("sales", [sale(1, at, v) for at, v in enumerate([1, 3, 2, 4, 5])])
        harness.push("sales", [sale(2, at, 7 if at == 1 else 1) for at in range(3)])
        harness.finish()
        rows, letters = harness.read("rows"), harness.read("dead_letters")
        assert [row["at"] for row in rows if row["a"] == 1] == (right or [0, 1, 3, 4])
        assert len(rows) + len(letters) == 8
        assert [row["at"] for row in rows if row["a"] == 2 and row["at"] == 0]


# over_rows.py

LARGE = """pipeline: p
limits: {{state: 100kB}}
streams:
  sales:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 1s}}
computations:
  o:
    input: {{sales: {{key: a}}}}
    over: {over}
    aggregate: {{all: {{collect: s}}, again: {{collect: s}}, most: {{max: "concat(s, s)"}}}}
    output: rows
"""


@pytest.mark.parametrize("together", [1, 7, 60])
@pytest.mark.parametrize(
    ("over", "count"),
    [("{rows: all}", 20), ("{range: all}", 20), ("{rows: 50}", 60), ("{range: 1h}", 60)],
)
def test_what_is_more_than_an_entry_of_state_is_left_out_and_told(
    tmp_path: Path, over: str, count: int, together: int
) -> None:
    (tmp_path / "p.yaml").write_text(LARGE.format(over=over))
    rows = [{"a": 1, "at": at, "s": f"{at:02}" + "x" * 2_000} for at in range(60)]
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for start in range(0, len(rows), together):
            harness.push("sales", rows[start : start + together])
        harness.finish()
        found = harness.read("rows")
        letters = harness.read("dead_letters")
    assert len(found) >= count
    assert [row["at"] for row in found] == [*range(len(found))]
    assert found[-1]["all"][-1].startswith(f"{len(found) - 1:02}")
    assert [each["value"]["at"] for each in letters] == [*range(len(found), 60)]
    assert all("is over limits.state (100kB)" in each["reason"] for each in letters)


def test_an_aggregate_takes_the_place_of_a_field_of_its_name(tmp_path: Path) -> None:
    text = HEAD + OVER.format(over="{rows: 2}", output="rows").replace("total:", "v:")
    (tmp_path / "p.yaml").write_text(text)
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        harness.push("sales", [sale(1, 5, 5), sale(1, 6, 6)])
        harness.advance_watermark(100)
        assert [row["v"] for row in harness.read("rows")] == [5, 11]


@pytest.mark.parametrize("lookback", ["{rows: 3}", "{range: 4us}", "{rows: all}"])
def test_crashes_change_nothing_of_results(tmp_path: Path, lookback: str) -> None:
    draw = random.Random(7)
    rows = [sale(draw.randrange(3), at + draw.randrange(4), draw.randrange(9)) for at in range(24)]
    assert_survives_crashes(written(tmp_path, lookback), in_bundles({"sales": rows}, 4), every=7)


@pytest.mark.parametrize(("one", "other"), [(0, 1), (9, 6), (10, 6), (300, 70_000), (3, 70_000)])
def test_two_encoded_maps_are_one(one: int, other: int) -> None:
    first, second = {str(n): n for n in range(one)}, {f"x{n}": n for n in range(other)}
    data = _one_map(encode_value(first), encode_value(second), other)
    assert decode_value(data) == {**first, **second}


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ("top: {by: [v], k: 1}", "and chance decides which versions it has"),
        (
            "window: {tumbling: 1m}, aggregate: {v: {sum: v}}, allowed_lateness: 1m,"
            " accumulation: retracting",
            "which over cannot undo; over before the retracting window",
        ),
    ],
)
def test_records_that_are_taken_back_are_refused(
    tmp_path: Path, before: str, sentence: str
) -> None:
    more = f"  c: {{input: {{sales: {{key: a}}}}, {before}, output: best}}\n"
    text = HEAD + more + OVER.format(over="{rows: 3}", output="rows")
    (tmp_path / "p.yaml").write_text(text.replace("{sales: {key: a}}\n", "{best: {key: a}}\n"))
    with pytest.raises(PipelineError, match=sentence):
        PipelineHarness(tmp_path / "p.yaml")
