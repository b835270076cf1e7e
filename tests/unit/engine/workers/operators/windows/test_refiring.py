"""Joins in windows that fire more than once, in the real runtime: against a join of all records,
and through crashes at every place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.pipeline.work import JoinKind
from millwheel.engine.workers.operators.windows.join import compared
from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = """
pipeline: joins
streams:
  shown: {{source: {{files: {{path: a, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
  clicked: {{source: {{files: {{path: b, format: jsonl}}}}, timestamp: {{field: at, unit: us}}}}
computations:
  matched:
    input: {{shown: {{key: ad}}, clicked: {{key: ad}}}}
    window: {window}
    join: {join}
    output: matched
"""
WINDOWS = {
    "tumbling": "{tumbling: 10us}",
    "sliding": "{sliding: 10us, every: 5us}",
    "session": "{session: 4us}",
    "cumulative": "{cumulative: 10us, every: 5us}",
}
AGAIN = {
    "late": "allowed_lateness: 1s",
    "early": "trigger: {repeat: {after_count: 1}}",
    "both": "trigger: {after_watermark: {early: {after_count: 2}, late: {after_count: 1}}}\n"
    "    allowed_lateness: 1s",
}
Row = dict[str, Any]


def written(folder: Path, window: str, join: str, more: str = "") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(window=window, join=join) + f"    {more}\n")
    return str(path)


def row(at: int, ad: int = 1, what: str = "x") -> Row:
    return {"at": at, "ad": ad, "what": what}


def folded(rows: list[Row]) -> Counter[str]:
    """The rows that were emitted once more than they were taken back; each is there before it is
    taken back."""
    found: Counter[str] = Counter()
    for value in rows:
        plain = {name: part for name, part in value.items() if name != "__retraction__"}
        line = json.dumps(plain, sort_keys=True)
        found[line] += -1 if "__retraction__" in value else 1
        assert found[line] >= 0, line
    return +found


def once(folder: Path, window: str, join: str, pushed: list[tuple[str, Row]]) -> list[Row]:
    """What the same join emits whose windows fire once, at the end."""
    with PipelineHarness(written(folder / "once", window, join)) as harness:
        for stream, value in pushed:
            harness.push(stream, value)
        harness.finish()
        return harness.take("matched")


pushes = st.lists(
    st.tuples(
        st.sampled_from(["shown", "clicked"]),
        st.builds(row, st.integers(0, 30), st.integers(1, 2), st.sampled_from("xy")),
    ),
    max_size=9,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("again")


@pytest.mark.parametrize("kind", WINDOWS)
@given(
    pushed=pushes,
    again=st.sampled_from(sorted(AGAIN)),
    join=st.sampled_from([kind.value for kind in JoinKind]),
    passed=st.integers(0, 9),
)
@settings(max_examples=6, deadline=None)
def test_what_stands_is_the_join_of_all_records_however_its_windows_fire(
    folder: Path, kind: str, pushed: list[tuple[str, Row]], again: str, join: str, passed: int
) -> None:
    wanted = once(folder, WINDOWS[kind], join, pushed)
    with PipelineHarness(
        written(folder / f"{kind}-{again}", WINDOWS[kind], join, AGAIN[again])
    ) as harness:
        found = []
        for number, (stream, value) in enumerate(pushed):
            if number == passed and again != "early":
                harness.advance_watermark(40)
            harness.push(stream, value)
            if number % 3 == 2:
                harness.crash()
            found += harness.take("matched")
        harness.finish()
        found += harness.take("matched")
    assert folded(found) == folded(wanted)
    if join in ("inner", "semi") and kind != "session":
        assert not any("__retraction__" in each for each in found), "what has a partner keeps it"


def test_a_record_that_stood_alone_is_taken_back_when_a_late_partner_comes(folder: Path) -> None:
    pipeline = written(folder / "alone", WINDOWS["tumbling"], "left", "allowed_lateness: 5us")
    with PipelineHarness(pipeline) as harness:
        harness.push("shown", row(3))
        harness.advance_watermark(10)
        [alone] = harness.take("matched")
        assert alone["clicked"] is None
        harness.push("clicked", row(4))
        back, pair = harness.take("matched")
        assert back == {**alone, "__retraction__": 1}
        assert (pair["shown"], pair["clicked"]) == (row(3), row(4))
        harness.crash()
        harness.push("clicked", row(5))
        [pair] = harness.take("matched")
        assert pair["clicked"] == row(5)
        harness.advance_watermark(15)
        harness.push("clicked", row(6))
        assert harness.take("matched") == []
        assert harness.counters["late"] == 1
        assert harness.state("matched", 1) == {}


def test_a_session_that_grows_takes_its_pairs_back(folder: Path) -> None:
    pipeline = written(folder / "grows", WINDOWS["session"], "inner", AGAIN["early"])
    with PipelineHarness(pipeline) as harness:
        for stream, at in (("shown", 1), ("clicked", 2)):
            harness.push(stream, row(at))
        [first] = harness.take("matched")
        harness.push("clicked", row(4))
        back, *pairs = harness.take("matched")
        assert back == {**first, "__retraction__": 1}
        assert [(each["window_end"], each["clicked"]["at"]) for each in pairs] == [(8, 2), (8, 4)]


def test_sessions_that_become_one_take_back_what_each_had(folder: Path) -> None:
    pipeline = written(folder / "one", WINDOWS["session"], "outer", AGAIN["early"])
    with PipelineHarness(pipeline) as harness:
        for stream, at in (("shown", 9), ("clicked", 1), ("shown", 10), ("shown", 3)):
            harness.push(stream, row(at))
        harness.crash()
        before = harness.take("matched")
        assert len(folded(before)) == 3
        harness.push("shown", row(6))
        after = harness.take("matched")
        wanted = once(
            folder,
            WINDOWS["session"],
            "outer",
            [
                *(("shown", row(at)) for at in (9, 10, 3, 6)),
                ("clicked", row(1)),
            ],
        )
        assert folded([*before, *after]) == folded(wanted)
        assert len(after) == 3 + 4, "no more than stood is taken back"


@pytest.mark.parametrize("kind", ["tumbling", "session"])
def test_a_join_that_fires_again_survives_crashes(folder: Path, kind: str) -> None:
    pipeline = written(folder / f"crash-{kind}", WINDOWS[kind], "outer", AGAIN["early"])
    records = {"shown": [row(1), row(12), row(3, ad=2)], "clicked": [row(2), row(25), row(14)]}
    assert assert_survives_crashes(pipeline, records, every=13) > 4


def test_records_that_a_window_had_are_known_by_their_number_or_their_content() -> None:
    now = [[[0, "a"], 1], [[1, "b"], 2], [[0, "a"], 1]]
    assert compared(2, now) == ([True, True, False], [])
    assert compared([now[1]], now) == ([False, True, False], [False])
    assert compared([now[0]], now) == ([True, False, False], [False]), "one of equal ones was"
    assert compared([now[1], now[1]], now) == ([False, True, False], [True, False])
    assert compared([[[0, "a"], 9]], now[:1]) == ([True], [False]), "results have no times"


def test_records_from_before_are_known_by_their_bytes() -> None:
    def of(before: Any, *now: Any) -> tuple[list[bool], list[bool]]:
        return compared([[[1, before], 0]], [[[1, each], 0] for each in now])

    assert of({"x": float("nan")}, {"x": float("nan")}) == ([True], [False])
    assert of({"x": 1}, {"x": 1.0}, {"x": 1}) == ([False, True], [False])
    assert of({"x": 1}, {"x": True}, {"x": 1}) == ([False, True], [False])
    assert of({"x": 1, "y": 2}, {"y": 2, "x": 1}) == ([True], [False])


CHANGING = """
pipeline: joins
streams:
  shown: {source: {files: {path: a, format: jsonl}}, timestamp: {field: at, unit: us}}
  clicked: {source: {files: {path: b, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  views:
    input: {shown: {key: ad}}
    window: {tumbling: 10us}
    aggregate: {n: count}
    trigger: {repeat: {after_count: 1}}
    allowed_lateness: 1s
    accumulation: retracting
    output: views
  matched:
    input: {clicked: {key: ad}, views: {key: ad}MORE}
    window: WINDOW
    join: JOIN
    allowed_lateness: 1s
    output: matched
"""


def changing(folder: Path, window: str, join: str, more: str = "") -> str:
    folder.mkdir(exist_ok=True)
    text = CHANGING.replace("WINDOW", window).replace("JOIN", join).replace("MORE", more)
    (folder / "pipeline.yaml").write_text(text + ("    trigger: {repeat: {after_count: 1}}\n"))
    return str(folder / "pipeline.yaml")


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "session"])
@given(pushed=pushes, join=st.sampled_from([kind.value for kind in JoinKind]))
@settings(max_examples=5, deadline=None)
def test_inputs_that_take_back_give_the_join_of_what_stands(
    folder: Path, kind: str, pushed: list[tuple[str, Row]], join: str
) -> None:
    with PipelineHarness(changing(folder / f"of-{kind}", WINDOWS[kind], join)) as harness:
        found = []
        for number, (stream, value) in enumerate(pushed):
            harness.push(stream, value)
            if number % 3 == 2:
                harness.crash()
            found += harness.take("matched")
        harness.finish()
        found += harness.take("matched")
        assert not harness.counters.get("dead_letters")
    last: dict[tuple[int, int], Row] = {}
    for stream, value in pushed:
        if stream == "shown":
            start = value["at"] - value["at"] % 10
            n = last.get((value["ad"], start), {"n": 0})["n"] + 1
            bounds = {"window_start": start, "window_end": start + 10}
            last[value["ad"], start] = {"ad": value["ad"], **bounds, "n": n}
    stands = [("views", {**each, "at": each["window_end"] - 1}) for each in last.values()]
    clicks = [each for each in pushed if each[0] == "clicked"]
    wanted = plainly(folder, WINDOWS[kind], join, [*clicks, *stands])
    assert folded(found) == folded(wanted)


def plainly(folder: Path, window: str, join: str, pushed: list[tuple[str, Row]]) -> list[Row]:
    """The join, once, of records of which none is taken back."""
    (folder / "plainly").mkdir(exist_ok=True)
    text = PIPELINE.format(window=window, join=join).replace("shown", "views")
    swapped = text.replace(
        "views: {key: ad}, clicked: {key: ad}", "clicked: {key: ad}, views: {key: ad}"
    )
    (folder / "plainly" / "pipeline.yaml").write_text(swapped)
    with PipelineHarness(str(folder / "plainly" / "pipeline.yaml")) as harness:
        for stream, value in pushed:
            harness.push(stream, value)
        harness.finish()
        rows = harness.take("matched")
    for row_ in rows:
        if isinstance(row_.get("views"), dict):
            del row_["views"]["at"]
    return rows


def test_a_window_that_has_nothing_any_more_takes_all_back(folder: Path) -> None:
    """Its only record becomes another window's."""
    pipeline = changing(folder / "moved", "{of: input}", "anti").replace("pipeline.yaml", "")
    text = (Path(pipeline) / "pipeline.yaml").read_text()
    text = text.replace("window: {tumbling: 10us}", "window: {session: 4us}").replace(
        "clicked: {key: ad}, views: {key: ad}", "views: {key: ad}, more: {key: ad}"
    )
    second = """  more:
    input: {clicked: {key: ad}}
    window: {session: 4us}
    aggregate: {n: count}
    output: more
"""
    (Path(pipeline) / "pipeline.yaml").write_text(text + second)
    with PipelineHarness(str(Path(pipeline) / "pipeline.yaml")) as harness:
        harness.push("shown", row(1))
        [first] = harness.take("matched")
        harness.push("shown", row(3))
        back, grown = harness.take("matched")
        assert back == {**first, "__retraction__": 1}
        assert (grown["window_end"], grown["n"]) == (7, 2)
        harness.crash()
        assert harness.state("matched", 1) != {}


def test_three_streams_are_joined_in_windows_that_fire_again(folder: Path) -> None:
    (folder / "three").mkdir()
    head = PIPELINE.format(window="{tumbling: 10us}", join="left")
    text = head.replace("clicked: {key: ad}}", "clicked: {key: ad}, bought: {key: ad}}").replace(
        "computations:",
        "  bought: {source: {files: {path: c, format: jsonl}}, timestamp: {field: at, unit: us}}\n"
        "computations:",
    )
    (folder / "three" / "pipeline.yaml").write_text(f"{text}    {AGAIN['early']}\n")
    records = {
        "shown": [row(1), row(2)],
        "clicked": [row(3), row(3)],
        "bought": [row(4), row(5), row(6)],
    }
    path = str(folder / "three" / "pipeline.yaml")
    with PipelineHarness(path) as harness:
        for stream, values in records.items():
            for value in values:
                harness.push(stream, value)
                harness.crash()
        rows = harness.take("matched")
    stands = folded(rows)
    assert sum(stands.values()) == 2 * 2 * 3
    assert all("null" not in each for each in stands)
    assert assert_survives_crashes(path, records, every=29) > 2
