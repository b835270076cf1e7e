"""What ``explain`` says of a node's form is what the workers do."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.work import BranchesSpec, StepsSpec
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.operators.slices.computation import SlicesOperator
from millwheel.engine.workers.operators.stateless import StatelessOperator
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.errors import PipelineError
from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.forms import forms_of
from tests.search.generate import Unlucky, case
from tests.search.running import Bench, Way, actions

FIELDS = ", fields: {at: int, ad: int, cost: float, name: str}"
_SUMS = "aggregate: {n: count, spend: {sum: cost}}"
WINDOWS = f"""pipeline: p
streams:
  events: {{source: {{files: {{path: in, format: jsonl}}}}, timestamp: at{FIELDS}}}
  others: {{source: {{files: {{path: other, format: jsonl}}}}, timestamp: at{FIELDS}}}
computations:
  clicks: {{input:
    {{events: {{key: ad}}}}, window: {{tumbling: 10s}}, {_SUMS}, output: out}}
sinks:
  out: {{files: {{path: out, format: jsonl}}}}
"""
SLICES = (
    WINDOWS[: WINDOWS.index("computations")]
    + "computations:\n  clicks: {input: {events: {key: ad}}, slices: {every: 10s, keep: 1h}, "
    "aggregate: {n: count, spend: {sum: cost}}}\n"
)
BARE = WINDOWS[: WINDOWS.index("sinks")]
OTHERS = "{events: {key: ad}, others: {key: ad}}, "
ROWS = "taken record by record: "
STATE = "taken in columns, state in rows: "

SAID = {
    "taken in columns": (BARE, "", ""),
    STATE + "late records are allowed": (
        BARE,
        "{tumbling: 10s}",
        (
            "{sliding: 10s, every: 5s, emit: changes}, accumulation: accumulating,"
            " allowed_lateness: 1m"
        ),
    ),
    STATE + "its trigger decides when windows fire": (
        BARE,
        "output",
        "trigger: {after_count: 3}, output",
    ),
    STATE + "results are taken back": (
        BARE,
        "{tumbling: 10s}",
        "{sliding: 10s, every: 5s, emit: changes}, accumulation: retracting",
    ),
    STATE + "windows of silent keys fire empty": (
        BARE,
        "tumbling: 10s",
        "tumbling: 10s, emit: empty",
    ),
    STATE + "count windows are merged in rows": (BARE, "tumbling: 10s", "count: 10"),
    STATE + "cumulative windows are merged in rows": (
        BARE,
        "tumbling: 10s",
        "cumulative: 10s, every: 1s",
    ),
    STATE + "no column holds the aggregate spend": (
        BARE.replace("{tumbling: 10s}", "{sliding: 10s, every: 5s, emit: changes}"),
        "sum: cost",
        "approx_count_distinct: cost",
    ),
    STATE + "slices are merged in rows": (SLICES, "", ""),
    "taken in columns, types inferred": (BARE, FIELDS, ""),
    "taken in columns, types inferred, state in rows: its trigger decides when windows fire": (
        BARE.replace(FIELDS, ""),
        "output",
        "trigger: {after_watermark: {early: {after_count: 3}}}, output",
    ),
    ROWS + "sessions look at each record where late records are allowed": (
        BARE,
        "{tumbling: 10s}",
        "{session: 10s}, allowed_lateness: 1m",
    ),
    ROWS + "cumulative windows with a trigger or late: refire look at each record": (
        BARE,
        "{tumbling: 10s}",
        "{cumulative: 10s, every: 1s}, late: refire",
    ),
    ROWS + "output_time looks at each record": (
        BARE,
        "output: out",
        "output_time: latest, output: out",
    ),
    ROWS + "its trigger measures each record": (
        BARE,
        "output",
        "trigger: {after_bytes: 1000}, output",
    ),
    ROWS + "weak productions have ids, which columns of results do not carry": (
        BARE,
        "output",
        "productions: weak, output",
    ),
    ROWS + "its key is not a field": (BARE, "{events: {key: ad}}", "events"),
    ROWS + "its result is the records": (BARE, "aggregate: {n: count, spend: {sum: cost}}, ", ""),
    ROWS + "the key user is not declared as int or str": (BARE, "key: ad", "key: user"),
    ROWS + "the aggregate spend has no column form: collect has none for what it is given": (
        BARE,
        "sum: cost",
        "collect: cost",
    ),
    ROWS + "the aggregate spend has no column form: its field price is not declared": (
        BARE,
        "sum: cost",
        "sum: price",
    ),
    ROWS + "its condition has no column form, or one of its fields is not declared": (
        BARE,
        "aggregate",
        "where: not name in 'abc', aggregate",
    ),
    ROWS + "each record decides whether its key went idle (ttl)": (SLICES, "1h}", "1h, ttl: 1m}"),
    ROWS + "the stream events declares no fields": (SLICES, FIELDS, ""),
    ROWS + "code of your own takes each record": (
        BARE,
        "window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}",
        "callback: 'codes:Own'",
    ),
    ROWS + "a join passes on records as they came, and keeps whole bundles of them": (
        BARE,
        "{events: {key: ad}}, window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}",
        OTHERS.replace("ad", "user") + "window: {tumbling: 10s}, join: inner",
    ),
    ROWS + "a join passes on records as they came, and has an entry for each window": (
        BARE,
        "{events: {key: ad}}, window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}",
        OTHERS + "window: {session: 10s}, join: inner",
    ),
    ROWS + "each record is compared with earlier ones": (
        BARE,
        "window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}",
        "deduplicate: {within: 10s}",
    ),
}
SOURCES = {
    "read in columns": ("", ""),
    "read in columns, types inferred: no fields are declared": (FIELDS, ""),
    "read record by record: clicks takes each record": ("key: ad", "key: user"),
    "read record by record: records are injected one by one": (
        "files: {path: in, format: jsonl}",
        "injection: {}",
    ),
    "read record by record: its timestamp is not declared as int; columns are made for clicks": (
        "at: int",
        "at: str",
    ),
    "read record by record: the id cost is not declared as int or str": (
        "timestamp: at",
        "timestamp: at, id: cost",
    ),
    "read record by record: the id other is not declared as int or str; "
    "columns are made for clicks": (
        "timestamp: at",
        "timestamp: at, id: other",
    ),
    "read record by record: sink.events takes each record; columns are made for clicks": (
        "sinks:\n",
        "sinks:\n  events: {files: {path: copy}}\n",
    ),
}


CODES = """import millwheel


class Own(millwheel.Computation):
    def process_record(self, ctx, record):
        pass
"""


def _said(folder: Path, text: str) -> dict[str, str]:
    (folder / "codes.py").write_text(CODES)
    (folder / "p.yaml").write_text(text)
    spec = load_pipeline(folder / "p.yaml")
    return forms_of(spec, build_graph(spec), lambda name: load_object(name, spec.folder))


@pytest.mark.parametrize("kept", [True, False], ids=["alone", "beside a consumer of records"])
def test_both_inputs_of_a_join_come_in_columns_or_neither(tmp_path: Path, kept: bool) -> None:
    aggregation = (
        "{events: {key: ad}}, window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}"
    )
    text = WINDOWS.replace(aggregation, OTHERS + "window: {tumbling: 10s}, join: inner")
    if not kept:
        text = text.replace(
            "sinks:", "  few: {input: events, flat_map: '[cost]', output: few}\nsinks:"
        )
    found = _said(tmp_path, text)
    assert found["clicks"].startswith("taken in columns") == kept
    assert found["source.others"].startswith("read in columns") == kept
    assert found["sink.out"] == ("comes in columns" if kept else "comes record by record")


@pytest.mark.parametrize("phrase", SAID)
def test_a_computation_says_in_which_form_it_takes_records_and_why(
    tmp_path: Path, phrase: str
) -> None:
    text, old, new = SAID[phrase]
    assert old in text
    assert _said(tmp_path, text.replace(old, new, 1))["clicks"] == phrase


@pytest.mark.parametrize("phrase", SOURCES)
def test_a_source_says_in_which_form_it_reads_and_why(tmp_path: Path, phrase: str) -> None:
    old, new = SOURCES[phrase]
    assert old in WINDOWS
    assert _said(tmp_path, WINDOWS.replace(old, new, 1))["source.events"] == phrase


def test_a_sink_says_in_which_form_results_come(tmp_path: Path) -> None:
    assert _said(tmp_path, WINDOWS)["sink.out"] == "comes in columns"
    assert (
        _said(tmp_path, WINDOWS.replace("output: out", "trigger: {after_count: 3}, output: out"))[
            "sink.out"
        ]
        == "comes record by record"
    )


def test_a_consumer_that_takes_records_makes_the_source_read_records_for_all(
    tmp_path: Path,
) -> None:
    more = "  all: {input: events, flat_map: '[cost]', output: all}\nsinks:"
    said = _said(tmp_path, WINDOWS.replace("sinks:", more, 1))
    assert (
        said["source.events"]
        == "read record by record: all takes each record; columns are made for clicks"
    )
    assert said["clicks"] == "taken in columns"
    assert said["all"] == "taken record by record: `flat_map [cost]` makes values without fields"


def test_each_entry_of_a_list_is_taken_in_columns(tmp_path: Path) -> None:
    more = "  all: {input: events, flat_map: {c: '[cost, cost]'}, output: all}\nsinks:"
    assert _said(tmp_path, WINDOWS.replace("sinks:", more, 1))["all"] == "taken in columns"


def test_records_that_are_passed_on_are_read_with_all_of_their_fields(tmp_path: Path) -> None:
    more = "  all: {input: events, filter: cost > 3, output: all}\nsinks:"
    said = _said(tmp_path, WINDOWS.replace("sinks:", more, 1))
    assert said["source.events"] == "read in columns, all fields"
    assert said["clicks"] == said["all"] == "taken in columns"


def test_what_is_made_of_results_is_made_in_columns_if_it_can_be(tmp_path: Path) -> None:
    for then, form, comes in (
        ("spend / n", "taken in columns", "comes in columns"),
        (
            "spend ** 2",
            "taken in columns, results in rows: `spend ** 2` has no column form",
            "comes record by record",
        ),
    ):
        text = WINDOWS.replace(
            ", output: out", f", then: {{m: {then}}}, having: n > 1, output: out"
        )
        said = _said(tmp_path, text)
        assert [said["clicks"], said["sink.out"]] == [form, comes]


def test_records_without_declared_fields_are_passed_on_in_columns(tmp_path: Path) -> None:
    text = WINDOWS.replace(FIELDS, "")
    step = "  clicks: {input: events, filter: cost > 3, output: out}\n"
    said = _said(tmp_path, text[: text.index("  clicks")] + step + text[text.index("sinks") :])
    assert said["source.events"] == (
        "read record by record: its records are passed on with undeclared fields;"
        " columns are made for clicks"
    )
    assert [said["clicks"], said["sink.out"]] == ["taken in columns", "comes in columns"]


def test_fields_within_fields_are_taken_in_columns(tmp_path: Path) -> None:
    more = """  picked: {input: pairs, filter: events.cost > 1, map: {name: others.name},
    output: picked}
sinks:
  picked: {files: {path: picked}}"""
    pairs = f"  pairs: {{input: {OTHERS}window: {{tumbling: 1m}}, join: left, output: pairs}}\n"
    text = WINDOWS.replace("sinks:", pairs + more)
    said = _said(tmp_path, text)
    assert [said["picked"], said["sink.picked"]] == ["taken in columns", "comes in columns"]

    deep = "{input: events, map: {cost: bid.cost, by: bid.by.name}, output: out}"
    text = WINDOWS.replace(FIELDS, "")
    text = text[: text.index("  clicks")] + f"  clicks: {deep}\n" + text[text.index("sinks") :]
    said = _said(tmp_path, text)
    assert said["source.events"] == (
        "read record by record: bid.by.name is a field within a field; columns are made for clicks"
    )
    assert [said["clicks"], said["sink.out"]] == ["taken in columns", "comes in columns"]


def test_a_consumer_of_records_that_are_injected_gets_no_columns(tmp_path: Path) -> None:
    said = _said(tmp_path, WINDOWS.replace("files: {path: in, format: jsonl}", "injection: {}"))
    assert said["clicks"] == "taken record by record, as events comes; state in columns"
    assert said["sink.out"] == "comes in columns"


def test_results_in_columns_are_taken_in_columns(tmp_path: Path) -> None:
    more = (
        "  hours: {input: {out: {key: ad}}, window: {tumbling: 1h}, aggregate: {n: {sum: n}},"
        " output: hours}\nsinks:"
    )
    said = _said(tmp_path, WINDOWS.replace("sinks:", more, 1))
    assert said["hours"] == "taken in columns, types inferred"


def test_what_drawn_pipelines_say_is_what_their_workers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes to which records are said to come one by one never get columns; of those that take
    columns, most do. State is where it is said to be."""
    arrived: dict[str, set[bool]] = defaultdict(set)
    operators: dict[str, Any] = {}
    made = Assembly._operator

    def watched(self: Assembly, node: Any, parts: Any) -> Any:
        operator = made(self, node, parts)
        run = operator.run

        def run_watched(bundle: Any) -> None:
            for arrival in bundle.arrivals:
                if len(arrival.batch):
                    arrived[node.name].add(isinstance(arrival.batch, ColumnBatch))
            run(bundle)

        operator.run = run_watched
        operators[node.name] = operator
        return operator

    monkeypatch.setattr(Assembly, "_operator", watched)
    claimed = seen = by_record = 0
    for seed in range(40):
        try:
            found = case(48_900 + seed, features=("columns",))
            spec = found.spec()
        except (Unlucky, PipelineError):  # some are drawn to be refused
            continue
        arrived.clear()
        operators.clear()
        with Bench(found, Way("columns"), spec) as bench:
            said = forms_of(
                bench.spec, build_graph(bench.spec), lambda name: load_object(name, spec.folder)
            )
            for action in actions(found, Way("columns")):
                bench.do(action)
        for computation in bench.spec.computations:
            name, phrase = computation.name, said[computation.name]
            in_columns = phrase.startswith("taken in columns")
            # others get columns that are taken apart
            if phrase.startswith("taken record by record, as"):
                assert True not in arrived[name], (seed, name, phrase)
            operator = operators.get(name)
            held = (
                phrase in ("taken in columns", "taken in columns, types inferred")
                or "; state in columns" in phrase
            )
            if isinstance(computation.work, StepsSpec | BranchesSpec):  # without state
                columns = isinstance(operator, StatelessOperator)
                assert columns or not in_columns, (seed, name, phrase)
            elif operator is not None:
                assert isinstance(operator, ColumnOperator) == held, (seed, name, phrase)
                if phrase.startswith("taken record by record: "):
                    assert not isinstance(operator, GroupedOperator), (seed, name, phrase)
                if "state in rows" in phrase:
                    assert isinstance(operator, (GroupedOperator, SlicesOperator)), (
                        seed,
                        name,
                        phrase,
                    )
            claimed += in_columns and bool(arrived[name])
            seen += in_columns and True in arrived[name]
            by_record += not in_columns and bool(arrived[name])
    assert claimed > 10
    assert by_record > 10
    assert seen > claimed / 2
