"""What ``explain`` says of local combine is what the workers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.graph import build_graph
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.errors import PipelineError
from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.local_combine import combined_of
from tests.search.generate import Unlucky, case
from tests.search.running import Bench, Way, actions

PIPELINE = """pipeline: p
streams:
  events:
    source: {files: {path: in, format: jsonl}}
    timestamp: at
    fields: {at: int, ad: int, cost: float}
computations:
  clicks: {input:
    {events: {key: ad}}, window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}},
    output: out}
sinks:
  out: {files: {path: out, format: jsonl}}
"""
NO = "no local combine for clicks: "
AGGREGATES = "window: {tumbling: 10s}, aggregate: {n: count, spend: {sum: cost}}"
SAID = {
    "local combine for clicks": ("", ""),
    NO + "records are read for sink.events, too": (
        "sinks:\n",
        "sinks:\n  events: {files: {path: copy}}\n",
    ),
    NO + "copies are recognized by the id of a record": (
        "timestamp: at",
        "timestamp: at\n    id: ad",
    ),
    NO + "records are traced": ("pipeline: p\n", "pipeline: p\ntracing: {sample: 1}\n"),
    NO + "records are injected one by one": ("files: {path: in, format: jsonl}", "injection: {}"),
    NO + "its windows are neither plain tumbling ones nor sliding by whole steps": (
        "tumbling: 10s",
        "session: 10s",
    ),
    NO + "its windows may fire more than once": (
        "output: out",
        "trigger: {after_count: 3}, output: out",
    ),
    NO + "late records are not dropped": ("output: out", "late: {side: behind}, output: out"),
    NO + "output_time looks at each record": ("output: out", "output_time: latest, output: out"),
    NO + "an aggregate depends on the order of records": ("sum: cost", "first: cost"),
    NO + "its productions are weak": ("output: out", "productions: weak, output: out"),
}
LATER = (
    "  hours: {input: {out: {key: ad}}, window: {tumbling: 1h}, aggregate: {n: {sum: n}}, output:"
    " hours}\nsinks:"
)


def _said(folder: Path, old: str, new: str, text: str = PIPELINE) -> dict[str, tuple[str, ...]]:
    assert old in text
    (folder / "p.yaml").write_text(text.replace(old, new, 1))
    spec = load_pipeline(folder / "p.yaml")
    return combined_of(spec, build_graph(spec), lambda name: load_object(name, spec.folder))


@pytest.mark.parametrize("line", SAID)
def test_a_source_says_whether_it_groups_and_why_not(tmp_path: Path, line: str) -> None:
    assert _said(tmp_path, *SAID[line])["source.events"] == (line,)


def test_nothing_is_said_where_nothing_is_aggregated_in_windows(tmp_path: Path) -> None:
    said = _said(tmp_path, f"{{events: {{key: ad}}}}, {AGGREGATES}", "events, filter: cost > 3")
    assert set(said.values()) == {()}


def test_divided_keys_take_no_groups(tmp_path: Path) -> None:
    said = _said(tmp_path, "output: out", "skew: scatter(4), output: out")
    assert said["source.events"] == ("no local combine for partial.clicks: its keys are divided",)
    assert said["partial.clicks"] == ("no local combine for clicks: its keys are divided",)


def test_a_computation_groups_for_some_consumers_while_others_get_records(tmp_path: Path) -> None:
    assert _said(tmp_path, "sinks:", LATER)["clicks"] == ("local combine for hours",)


def test_weak_productions_are_not_grouped(tmp_path: Path) -> None:
    text = PIPELINE.replace("output: out", "productions: weak, output: out")
    assert _said(tmp_path, "sinks:", LATER, text)["clicks"] == (
        "no local combine for hours: productions are weak",
    )


def test_a_source_names_those_for_which_it_reads_records(tmp_path: Path) -> None:
    more = (
        "  last: {input: {events: {key: ad}}, window: {tumbling: 1h}, aggregate: {n: {last: cost}},"
        " output: l}\nsinks:"
    )
    assert _said(tmp_path, "sinks:", more)["source.events"] == (
        "no local combine for clicks: records are read for last, too",
        "no local combine for last: an aggregate depends on the order of records",
    )


def test_sources_group_where_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of drawn pipelines, exactly the streams of which it is said have groupings where the workers
    read them."""
    made: dict[str, set[str]] = {}
    source = Assembly._source

    def watched(self: Assembly, node: Any, parts: Any) -> Any:
        operator = source(self, node, parts)
        combining = operator._parts.combining if isinstance(operator, SourceOperator) else None
        made[node.name] = set() if combining is None else set(combining.groupings)
        return operator

    monkeypatch.setattr(Assembly, "_source", watched)
    on = off = 0
    for seed in range(25):
        try:
            found = case(51_300 + seed, features=("columns",))
            spec = found.spec()
        except (Unlucky, PipelineError):  # some are drawn to be refused
            continue
        made.clear()
        with Bench(found, Way("columns"), spec) as bench:
            said = combined_of(
                bench.spec, build_graph(bench.spec), lambda name: load_object(name, spec.folder)
            )
            for action in actions(found, Way("columns")):
                bench.do(action)
        for name, groups in made.items():
            lines = [
                line.removeprefix("local combine for ")
                for line in said[name]
                if line.startswith("local")
            ]
            assert {each for line in lines for each in line.split(", ")} == groups, (
                seed,
                name,
                said[name],
            )
            on += bool(groups)
            off += not groups
    assert on
    assert off
