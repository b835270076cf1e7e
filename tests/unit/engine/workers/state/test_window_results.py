"""Windows are asked while they are open, and their newest results where they are kept; nothing is
changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.model.times import MIN_TIME
from millwheel.engine.queries.model import Finding, Mode, Query, QueryError
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.queries.store_answers import StoreAnswers
from millwheel.engine.workers.state.window_results import KeptWindow, of_windows
from millwheel.language.spec import load_pipeline
from millwheel.testing import PipelineHarness

S = 1_000_000
FIELDS = ", fields: {at: int, ad: int, cost: float}"
FORMS = {
    "rows": ("", "tumbling: 10s", ""),
    "columns": (FIELDS, "tumbling: 10s", ""),
    "sessions": ("", "session: 5s", ""),
    "sessions in columns": (FIELDS, "session: 5s", ""),
    "early": (
        FIELDS,
        "tumbling: 10s",
        "trigger: {after_watermark: {early: {after_count: 2}}}\n    accumulation: accumulating",
    ),
}


def pipeline(folder: Path, form: str, more: str = "") -> str:
    fields, window, trigger = FORMS[form]
    path = folder / "windows.yaml"
    path.write_text(f"""
pipeline: windows
streams:
  events: {{source: {{injection: {{}}}}, timestamp: at{fields}}}
computations:
  minutes:
    input: {{events: {{key: ad}}}}
    window: {{{window}}}
    {trigger}
    {more}
    aggregate: {{n: count, spend: {{sum: cost}}}}
    output: out
""")
    return str(path)


def push(harness: PipelineHarness, *records: tuple[int, int]) -> None:
    for ad, second in records:
        harness.push("events", {"at": second * S, "ad": ad, "cost": 0.5})


def code(harness: PipelineHarness, *question: Any, **more: Any) -> str:
    with pytest.raises(QueryError) as caught:
        harness.ask(*question, **more)
    return caught.value.code


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("crash_every", [None, 7])
def test_open_windows_are_asked_with_their_current_accumulators(
    tmp_path: Path, form: str, crash_every: int | None
) -> None:
    session = "session" in form
    with PipelineHarness(pipeline(tmp_path, form), shards=1, crash_every=crash_every) as harness:
        push(harness, (1, 2), (1, 4), (2, 3), (1, 13))
        starts = (2, 13) if session else (0, 10)
        ends = (9, 18) if session else (10, 20)
        asked = harness.ask("minutes", 1, mode="open")
        rows = [
            {"window_start": start * S, "window_end": end * S, "n": n, "spend": n / 2}
            for start, end, n in zip(starts, ends, (2, 1), strict=True)
        ]
        assert asked.values == {"windows": rows}
        assert (asked.covered_start_us, asked.covered_end_us, asked.complete) == (
            starts[0] * S,
            ends[1] * S,
            False,
        )
        one = harness.ask("minutes", 1, until=starts[1] * S)
        assert (one.values, one.covered_end_us) == ({"n": 1, "spend": 0.5}, ends[1] * S)
        assert harness.ask("minutes.n", 1, until=starts[0] * S).values == {"n": 2}
        assert harness.ask("minutes.n", 1, mode="open").values["windows"][0] == {
            "window_start": starts[0] * S, "window_end": ends[0] * S, "n": 2,
        }  # fmt: skip
        assert harness.ask("minutes", 9, mode="open").values == {"windows": []}
        assert code(harness, "minutes", 1) == "not_asked"
        assert code(harness, "minutes", 1, "1h") == "bad_window"
        assert code(harness, "minutes", 1, until=3 * S) == "beyond_keep"
        assert code(harness, "minutes", 1, until=10**19 - 1) in ("bad_window", "beyond_keep")
        assert code(harness, "minutes.x", 1, until=starts[0] * S) == "unknown_indicator"
        copies = StoreAnswers(load_pipeline(tmp_path / "windows.yaml"))
        [shard] = harness._cluster.shards_of("minutes")
        assert copies.answer(Query("minutes", 1, until_us=starts[0] * S), shard.store,
        MIN_TIME).values == {
            "n": 2, "spend": 1.0,
        }  # fmt: skip
        if form == "columns":
            assert isinstance(shard.operator, ColumnOperator)
        harness.advance_watermark(12 * S)
        assert len(harness.ask("minutes", 1, mode="open").values["windows"]) == 1
        assert code(harness, "minutes", 1, until=starts[0] * S) == "beyond_keep"
        harness.advance_watermark(30 * S)
        assert harness.ask("minutes", 1, mode="open").values == {"windows": []}
        assert len([row for row in harness.read("out") if row["ad"] == 1]) >= 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("crash_every", [None, 7])
def test_the_newest_result_is_kept_where_the_pipeline_says_so(
    tmp_path: Path, form: str, crash_every: int | None
) -> None:
    late = (
        "" if "session" in form else "allowed_lateness: 1h" if form == "early" else "late: refire"
    )
    late += "\n    accumulation: discarding" if "refire" in late else ""
    path = pipeline(tmp_path, form, f"queryable: latest\n    {late}")
    with PipelineHarness(path, shards=2, crash_every=crash_every) as harness:
        push(harness, (1, 2), (1, 4), (1, 13), (1, 14), (2, 3))
        if form != "early":
            assert code(harness, "minutes", 1) == "beyond_keep"
        harness.advance_watermark(19 * S)
        first = harness.ask("minutes", 1)
        session = "session" in form
        assert first.values["n"] == 2
        assert (first.covered_start_us, first.covered_end_us) == (
            (13 * S, 19 * S) if session else (10 * S, 20 * S) if form == "early" else (0, 10 * S)
        )
        harness.advance_watermark(30 * S)
        newest = harness.ask("minutes", 1)
        assert (newest.values, newest.complete) == ({"n": 2, "spend": 1.0}, True)
        assert newest.covered_start_us == (13 if session else 10) * S
        assert harness.ask("minutes.spend", 1, until=newest.covered_start_us).values == {
            "spend": 1.0
        }
        if late:
            push(harness, (1, 5))  # a late firing of an older window
            assert harness.ask("minutes", 1).values == newest.values
        assert harness.ask("minutes.n", 2).values == {"n": 1}


def test_a_result_that_is_taken_back_is_not_the_newest(tmp_path: Path) -> None:
    """Two sessions fire early and then become one."""
    path = Path(pipeline(tmp_path, "sessions", "queryable: latest"))
    path.write_text(
        path.read_text().replace(
            "    queryable",
            "    trigger: {after_watermark: {early: {after_count: 1}}}\n    accumulation:"
            " retracting\n    queryable",
        )
    )
    with PipelineHarness(str(path), shards=1) as harness:
        push(harness, (1, 2), (1, 10))
        assert harness.ask("minutes", 1).covered_start_us == 10 * S
        push(harness, (1, 6))
        joined = harness.ask("minutes", 1)
        assert (joined.covered_start_us, joined.covered_end_us, joined.values["n"]) == (
            2 * S,
            15 * S,
            3,
        )


def test_windows_that_keep_no_results_of_their_own_are_not_asked(tmp_path: Path) -> None:
    for window in ("cumulative: 10s, every: 1s", "count: 3"):
        path = Path(pipeline(tmp_path, "rows"))
        path.write_text(path.read_text().replace("tumbling: 10s", window))
        with PipelineHarness(str(path)) as harness:
            push(harness, (1, 2))
            assert code(harness, "minutes", 1, mode="open") == "not_asked"


@pytest.mark.parametrize("form", ["rows", "sessions"])
def test_the_newest_result_and_one_window_are_found_without_a_scan(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PipelineHarness(pipeline(tmp_path, form, "queryable: latest"), shards=1) as harness:
        push(harness, (1, 2), (1, 13))
        harness.advance_watermark(11 * S)
        [shard] = harness._cluster.shards_of("minutes")
        with monkeypatch.context() as without:
            without.setattr(type(shard.store), "scan", None)
            until = (10 if form == "rows" else 13) * S
            assert harness.ask("minutes.n", 1).values == {"n": 1}
            assert harness.ask("minutes.n", 1, until=until).values == {"n": 1}


OPEN = [KeptWindow(10, 20, {"n": 2, "m": 5}), KeptWindow(20, 30, {"n": 1, "m": 6})]
LATEST = KeptWindow(0, 10, {"n": 7, "m": 8})


def test_no_time_means_the_newest_result_and_a_time_the_window_that_begins_then() -> None:
    assert of_windows(Query("c", 1), OPEN, LATEST, True, 15) == Finding(
        {"n": 7, "m": 8}, 0, 10, True
    )
    assert of_windows(Query("c.n", 1, until_us=20), OPEN, LATEST, True, 15) == Finding(
        {"n": 1}, 20, 30, False
    )
    assert of_windows(Query("c", 1, until_us=0), OPEN, LATEST, True, 9).complete is False


def test_all_that_are_open_are_a_list_of_one_value() -> None:
    rows = [
        {"window_start": 10, "window_end": 20, "n": 2},
        {"window_start": 20, "window_end": 30, "n": 1},
    ]
    assert of_windows(Query("c.n", 1, mode=Mode.OPEN), OPEN, LATEST, True, 30) == Finding(
        {"windows": rows}, 10, 30
    )
    assert of_windows(Query("c", 1, mode=Mode.OPEN), [], None, False, 30) == Finding(
        {"windows": []}
    )


@pytest.mark.parametrize(
    ("query", "latest", "keeps", "code"),
    [
        (Query("c", 1, window_us=5), LATEST, True, "bad_window"),
        (Query("c", 1), None, False, "not_asked"),
        (Query("c", 1), None, True, "beyond_keep"),
        (Query("c", 1, until_us=5), LATEST, True, "beyond_keep"),
        (Query("c.x", 1), LATEST, True, "unknown_indicator"),
    ],
)
def test_what_has_no_answer_is_an_error_with_a_code(
    query: Query, latest: KeptWindow | None, keeps: bool, code: str
) -> None:
    with pytest.raises(QueryError) as caught:
        of_windows(query, OPEN, latest, keeps, 15)
    assert caught.value.code == code
