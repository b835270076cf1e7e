"""Whole pipeline files: what becomes of a right one, and what is said about wrong ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec, PipelineSpec
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline
from millwheel.language.spec.pipelines import load_pipeline, load_queries, one_query

MINIMAL = """\
pipeline: p
streams:
  hits: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: ts}
computations:
  c: {input: hits, callback: detectors:SpikeDetector, output: out}
sinks: {out: {stdout: {}}}
"""


def test_the_pipeline_of_the_design_becomes_a_complete_spec(
    weblog: str, check: Any, folder: Path
) -> None:
    spec = check(weblog)
    hits, (traffic, spikes) = spec.streams[0], spec.computations
    assert (spec.name, spec.folder, spec.file) == (
        "weblog",
        str(folder),
        str(folder / "pipeline.yaml"),
    )
    assert hits.source.options == {"path": str(folder / "access.log"), "format": "apache_combined"}
    assert (hits.timestamp, hits.max_delay_us, hits.idle_after_us) == (
        "time",
        120_000_000,
        5_000_000,
    )
    assert hits.where.endswith("pipeline.yaml:3")
    assert traffic.inputs == (InputSpec("hits", KeySpec(KeyKind.FIELD, ("path",))),)
    assert traffic.windowed.window == WindowSpec("tumbling", {"size_us": 60_000_000})
    assert traffic.aggregates[1] == AggregateSpec("bytes", "sum", "size")
    assert (spikes.called.callback, spikes.outputs) == ("detectors:SpikeDetector", ("alerts",))
    assert spec.sinks[0].options["path"] == str(folder / "out/alerts")


def test_a_minimal_pipeline_needs_no_computation(check: Any) -> None:
    spec = check(
        "pipeline: p\nstreams:\n  a: {source: {injection: {}}, timestamp: ts}\nsinks: {a: {stdout:"
        " {}}}\n"
    )
    assert spec.computations == ()


def test_all_problems_are_reported_by_line(weblog: str, problems: Any) -> None:
    broken = (
        weblog.replace("2m", "2")
        .replace("{sum: size}", "{summ: size}")
        .replace("format: jsonl", "format: xml")
    )
    broken = broken.replace("traffic_by_minute: {key", "traffic_by_minut: {key")
    found = problems(broken)
    assert [problem.split(": ")[0] for problem in found] == [
        f"pipeline.yaml:{line}" for line in (6, 11, 14, 18)
    ]
    assert found[1].startswith(
        "pipeline.yaml:11: computations.traffic.aggregate.bytes: unknown function 'summ'; did you"
        " mean 'sum'? Known: "
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("timestamp: time", "timestmp: time"),
            "5: streams.hits.timestmp: unknown field 'timestmp'; did you mean 'timestamp'?",
        ),
        (
            ("files: {path", "fils: {path"),
            "4: streams.hits.source.fils: unknown source 'fils'; did you mean 'files'?",
        ),
        (("format: apache", "fromat: apache"), "4: streams.hits.source.files.fromat: "),
        (("apache_combined", "apache"), "4: streams.hits.source.files.format: "),
        (
            ("alerts: {files", "alert: {files"),
            "18: sinks.alert: unknown stream 'alert'; did you mean 'alerts'?",
        ),
        (
            ("alerts: {files", "alerts: {flies"),
            "18: sinks.alerts.flies: unknown sink 'flies'; did you mean 'files'?",
        ),
        (
            ("{hits: {key", "{hist: {key"),
            "9: computations.traffic.input.hist: unknown stream 'hist'; did you mean 'hits'?",
        ),
        (
            ("key: path}}\n    window", "keys: path}}\n    window"),
            "input.hits.keys: unknown field 'keys'; did you mean 'key'?",
        ),
        (
            ("detectors:Spike", "detector:Spike"),
            "there is no module 'detector': neither detector.py beside the pipeline",
        ),
        (("SpikeDetector", "SpikeDetectro"), "has no 'SpikeDetectro'"),
        (
            ("SpikeDetector", "Plain"),
            "15: computations.spikes.callback: detectors:Plain is not a class derived from",
        ),
        (("SpikeDetector", "by_user"), "is not a class derived from"),
        (("SpikeDetector", "Lazy"), "Lazy has no process_record"),
        (("detectors:SpikeDetector", "SpikeDetector"), "names no Python object; write module:name"),
        (
            ("pipeline: weblog", "pipeline: web/log"),
            "1: pipeline: 'web/log' cannot be the name of a pipeline",
        ),
        (("pipeline: weblog\n", ""), "pipeline: is missing"),
        (("  traffic:\n", "  source.traffic:\n"), "cannot be the name of a computation"),
        (("output: alerts", "output: dead_letters"), "'dead_letters' is filled by the system"),
        (("    output: traffic_by_minute\n", ""), "computations.traffic.output: is missing"),
        (
            ("output: alerts", "output: hits2\n    options: {treshold: 5}"),
            "did you mean 'threshold'?",
        ),
        (("sinks:", "sink:"), "17: sink: unknown field 'sink'; did you mean 'sinks'?"),
    ],
)
def test_a_mistake_is_named_with_line_field_and_fix(
    weblog: str, problems: Any, change: tuple[str, str], expected: str
) -> None:
    assert change[0] in weblog
    assert expected in "\n".join(problems(weblog.replace(*change)))


@pytest.mark.parametrize(
    "change",
    [
        ("output: alerts", "ouput: alerts"),
        ("timestamp: time", "timestmp: time"),
        ("computations:", "computation:"),
        ('files: {path: "${input}"', 'fils: {path: "${input}"'),
        ("${input}", "${inptu}"),
        ("  traffic:", "  traf.fic:"),
    ],
)
def test_one_mistake_is_one_problem(weblog: str, problems: Any, change: tuple[str, str]) -> None:
    assert len(problems(weblog.replace(*change))) == 1


@pytest.mark.parametrize(
    "text", ["[]", "text", "3", "streams: 3\ncomputations: [a]\nsinks: {a: b}\npipeline: {}\n"]
)
def test_other_shapes_than_maps_are_said_to_be_wrong(text: str, problems: Any) -> None:
    assert all("must be" in problem or "names one sink" in problem for problem in problems(text))
    assert problems(text)


def test_a_parameter_that_nothing_uses_is_a_warning(folder: Path) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(MINIMAL)
    assert "--set inptu=" in check_pipeline(file, {"inptu": "x"}, {})[1][0]


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nothing\.yaml: the pipeline file cannot be read"):
        load_pipeline(tmp_path / "nothing.yaml")
    with pytest.raises(PipelineError, match="is a folder"):
        load_pipeline(tmp_path)


# --- nothing but PipelineError, whatever comes ----------------------------------------------------

_TEXT = """
pipeline streams computations sinks source files path format timestamp id watermark max_delay
  schema fields input
output key window tumbling sliding every session count global custom aggregate sum quantile q of
  where trigger
after_count any late side:x shards callback options hits out a p 1m -5m 99999999999999999999d
  ${x} ${x:-3}
detectors:Ticker a==1 5 -1 1e999 .nan true null never UTC stdout injection generator rate
"""
_WORDS = st.sampled_from(_TEXT.split())
_LEAVES = st.one_of(
    _WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)
)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)


def _only_pipeline_errors(folder: Path, data: bytes) -> None:
    file = folder / "fuzz.yaml"
    file.write_bytes(data)
    start = time.process_time()
    problems: tuple[str, ...] = ()
    try:
        check_pipeline(file, {"x": "1"}, {})
    except PipelineError as ex:
        problems = ex.problems
    assert all(problem.startswith(str(file)) for problem in problems)
    assert time.process_time() - start < 5


_FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_FUZZ
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_cleanly(folder: Path, data: bytes) -> None:
    _only_pipeline_errors(folder, data)


@_FUZZ
@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t${}<~0.x", max_size=80))
def test_random_yaml_like_text_is_refused_cleanly(folder: Path, text: str) -> None:
    _only_pipeline_errors(folder, text.encode())


@_FUZZ
@given(tree=_TREES)
def test_random_trees_are_refused_cleanly(folder: Path, tree: Any) -> None:
    _only_pipeline_errors(folder, _yaml(tree))


_PARTS = st.fixed_dictionaries(
    {"pipeline": _LEAVES, "streams": st.dictionaries(_WORDS, _TREES, max_size=2)},
    optional={"computations": st.dictionaries(_WORDS, st.dictionaries(_WORDS, _TREES, max_size=6),
    max_size=3),
              "sinks": st.dictionaries(_WORDS, _TREES, max_size=2)},
)  # fmt: skip


@_FUZZ
@given(tree=_PARTS)
def test_random_pipelines_are_refused_cleanly(folder: Path, tree: Any) -> None:
    _only_pipeline_errors(folder, _yaml(tree))


@_FUZZ
@given(data=st.data())
def test_a_right_pipeline_with_a_bite_out_of_it_is_refused_cleanly_or_right(
    folder: Path, weblog: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(weblog)))
    end = data.draw(st.integers(start, min(start + 30, len(weblog))))
    _only_pipeline_errors(
        folder,
        (weblog[:start] + data.draw(st.text(max_size=3)) + weblog[end:]).encode("utf-8", "replace"),
    )


def _yaml(tree: Any) -> bytes:
    """The tree as YAML (JSON is YAML, but for odd floats)."""
    import json

    return json.dumps(tree).replace("NaN", ".nan").replace("Infinity", ".inf").encode()


PIPELINE = """
pipeline: asked
streams:
  events: {source: {injection: {}}, timestamp: at}
computations:
  clicks: {input: {events: {key: ad}}, slices: {every: 1m, keep: 1d}, aggregate: {n: count,
    spend: {sum: cost}}}
queries:
  cpc: {formula: clicks.spend / clicks.n, window: 1h}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "p.yaml")


def test_a_file_may_be_a_whole_pipeline_or_queries_alone(
    spec: PipelineSpec, tmp_path: Path
) -> None:
    assert [each.name for each in load_queries(str(tmp_path / "p.yaml"), spec)] == ["cpc"]
    (tmp_path / "q.yaml").write_text("queries:\n  many: {formula: clicks.n * 2}\n")
    assert [each.formula for each in load_queries(str(tmp_path / "q.yaml"), spec)] == [
        "clicks.n * 2"
    ]


def test_one_query_has_a_formula_and_perhaps_a_window(spec: PipelineSpec) -> None:
    (found,) = one_query("many", "clicks.n * 2", "3h", spec)
    assert (found.name, found.window_us) == ("many", 3 * 3_600_000_000)


@pytest.mark.parametrize(
    ("name", "formula", "window", "said"),
    [
        ("q", "views.n", "", "unknown computation 'views'"),
        ("q", "clicks.m", "", "unknown value of clicks 'm'"),
        ("q", "clicks.n", "2d", "longer than clicks keeps"),
        ("q", "clicks.n +", "", "not an expression"),
        ("q q", "clicks.n", "", "cannot be the name"),
        ("clicks", "clicks.n", "", "name of a computation"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    spec: PipelineSpec, name: str, formula: str, window: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        one_query(name, formula, window, spec)
