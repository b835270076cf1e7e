"""``skew:`` as it is written, and why keys cannot be divided."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.spec import AggregationStage, PipelineSpec
from millwheel.core.pipeline.work import AggregationSpec, SlicesSpec
from millwheel.core.slices.slots import WIDTH
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import load_pipeline

PLAIN = "window: {tumbling: 1m}, aggregate: {n: count}, output: o"


def names(
    tmp_path: Path, computation: str, key: str = "{events: {key: k}}", more: str = ""
) -> list[str]:
    path = tmp_path / "p.yaml"
    path.write_text(f"""
pipeline: p
streams:
  events: {{source: {{injection: {{}}}}, timestamp: at}}
  others: {{source: {{injection: {{}}}}, timestamp: at}}
computations: {{c: {{input: {key}, {computation}}}{more}}}
""")
    return [each.name for each in load_pipeline(path, {}, {}).computations]


def refused(
    tmp_path: Path, computation: str, key: str = "{events: {key: k}}", more: str = ""
) -> str:
    with pytest.raises(PipelineError) as caught:
        names(tmp_path, computation, key, more)
    return str(caught.value)


@pytest.mark.parametrize(("skew", "planned"), [("hash", ["c"]), ("scatter(2)", ["partial.c", "c"])])
def test_scatter_makes_two_computations(tmp_path: Path, skew: str, planned: list[str]) -> None:
    assert names(tmp_path, f"{PLAIN}, skew: {skew}") == planned


@pytest.mark.parametrize("window", ["{session: 1m}", "{sliding: 2m, every: 1m}"])
def test_sessions_and_sliding_windows_can_be_divided(tmp_path: Path, window: str) -> None:
    computation = f"window: {window}, aggregate: {{n: count}}, output: o, skew: scatter(2)"
    assert names(tmp_path, computation) == ["partial.c", "c"]


@pytest.mark.parametrize(
    "skew", ["lag", "hash(3)", "scatter", "scatter(x)", "tag()", "auto()", "automatic"]
)
def test_other_words_are_refused_with_those_there_are(tmp_path: Path, skew: str) -> None:
    assert (
        "write scatter(4) to divide each key over 4 instances, auto to divide hot keys only, or"
        " hash" in refused(tmp_path, f"{PLAIN}, skew: {skew}")
    )


@pytest.mark.parametrize("word", ["scatter", "auto", "w-choices"])
@pytest.mark.parametrize("count", [0, 1, 65])
def test_there_are_at_least_two_instances_and_not_too_many(
    tmp_path: Path, count: int, word: str
) -> None:
    assert f"2 to 64 instances, not {count}" in refused(tmp_path, f"{PLAIN}, skew: {word}({count})")


def of_a_file(tmp_path: Path, computation: str, stream: str = "") -> PipelineSpec:
    path = tmp_path / "p.yaml"
    source = "{files: {path: '/nowhere/*.jsonl', format: jsonl}}"
    path.write_text(
        f"pipeline: p\nstreams: {{events: {{source: {source}, timestamp: at{stream}}}}}\n"
        f"computations: {{c: {{input: {{events: {{key: k}}}}, {computation}}}}}\n"
    )
    return load_pipeline(path, {}, {})


@pytest.mark.parametrize(("skew", "instances"), [("auto", 16), ("auto(3)", 3)])
def test_auto_divides_hot_keys_only(tmp_path: Path, skew: str, instances: int) -> None:
    partial, final = of_a_file(tmp_path, f"{PLAIN}, skew: {skew}").computations
    assert partial.inputs[0].key == KeySpec(KeyKind.FIELD, ("k",), instances, divided=Divided.HOT)
    assert final.inputs[0].key == KeySpec(KeyKind.FIELD, ("k",))


@pytest.mark.parametrize(
    ("skew", "instances", "divided"),
    [("tag(12)", 12, Divided.TAG), ("d-choices", 16, Divided.D_CHOICES)],
)
def test_a_grouping_by_name_divides_keys_over_fixed_places(
    tmp_path: Path, skew: str, instances: int, divided: Divided
) -> None:
    spec = of_a_file(tmp_path, f"{PLAIN}, skew: {skew}")
    partial, final = spec.computations
    assert partial.inputs[0].key == KeySpec(KeyKind.FIELD, ("k",), instances, divided=divided)
    assert final.inputs[0].key == KeySpec(KeyKind.FIELD, ("k",))
    graph = build_graph(spec)
    assert (graph.grain(partial.name), graph.grain(final.name)) == (WIDTH, 1)


@pytest.mark.parametrize("skew", ["auto", "tag(12)", "pkg"])
def test_keys_are_divided_by_tables_wherever_records_come_from(tmp_path: Path, skew: str) -> None:
    assert names(tmp_path, f"{PLAIN}, skew: {skew}") == ["partial.c", "c"]
    assert names(tmp_path, f"{PLAIN}, allowed_lateness: 1m, skew: {skew}") == ["partial.c", "c"]
    with pytest.raises(
        PipelineError, match="records of events have ids, and a copy may come by another partition"
    ):
        of_a_file(tmp_path, f"{PLAIN}, skew: {skew}", ", id: i")
    before = ", b: {input: {events: {key: k}}, filter: n > 1, output: b, productions: weak}"
    found = refused(tmp_path, f"{PLAIN}, skew: {skew}", "{b: {key: k}}", before)
    assert "productions of b are weak: it may make them again after a crash" in found


@pytest.mark.parametrize(
    "window",
    [
        "window: {sliding: 2m, every: 1m, emit: changes}, output: o",
        "window: global, output: o",
        "window: {cumulative: 1h, every: 1m}, output: o",
        (
            "window: {cumulative: 1d, every: 1m, emit: changes}, allowed_lateness: 1m,"
            " accumulation: retracting, output: o"
        ),
        "slices: {every: 5m, keep: 1h, time_zone: Europe/Paris}",
    ],
)
def test_windows_that_share_records_and_slices_are_divided(tmp_path: Path, window: str) -> None:
    spec = of_a_file(tmp_path, f"{window}, aggregate: {{n: count}}, skew: dag(3)")
    partial, final = spec.computations
    assert (partial.stage, final.stage) == (AggregationStage.PARTIAL, AggregationStage.FINAL)
    assert isinstance(final.work, SlicesSpec) == ("slices" in window)
    assert isinstance(partial.work, AggregationSpec)


@pytest.mark.parametrize(
    ("computation", "reason"),
    [
        ("filter: n > 1, output: o", "only an aggregation in windows"),
        ("window: {tumbling: 1m}, output: o", "only an aggregation in windows"),
        (
            "slices: {every: 5m, keep: 1h, ttl: 1h}, aggregate: {n: count}",
            "slices with a ttl forget a key",
        ),
        (
            "window: {count: 3}, aggregate: {n: count}, output: o",
            "so many records of a whole key, which no part counts",
        ),
        (
            (
                "window: {cumulative: 1h, every: 1m}, aggregate: {n: count}, output: o, trigger:"
                " {repeat: never}"
            ),
            "pieces between two steps",
        ),
        (
            "window: {session: 1m}, aggregate: {n: count}, output: o, allowed_lateness: 1m",
            "sessions, which fire once",
        ),
        (
            (
                "window: {session: 1m}, aggregate: {n: count}, output: o, "
                "trigger: {after_watermark: {early: {after_processing_time: 1s}}}"
            ),
            "trigger does not go with divided keys in sessions",
        ),
        (
            f"{PLAIN}, trigger: {{repeat: {{after_count: 2}}}}",
            "this trigger counts the records of a whole key",
        ),
        (
            (
                f"{PLAIN}, trigger: {{after_watermark: {{early: {{after_processing_time: 1s}},"
                " late: never}}"
            ),
            "this trigger counts the records of a whole key",
        ),
        (f"{PLAIN}, output_time: latest", "output_time does not go with divided keys"),
        (f"{PLAIN}, late: refire", "late does not go with divided keys"),
        (
            "window: {tumbling: 1m}, aggregate: {n: {collect: x}}, output: o",
            "n: collect depends on the order",
        ),
        (
            "window: {tumbling: 1m}, aggregate: {n: {first: x}}, output: o",
            "n: first depends on the order",
        ),
        (
            "window: {tumbling: 1m}, aggregate: {n: {last: x}}, output: o",
            "n: last depends on the order",
        ),
        ("order_by: timestamp, output: o", "only an aggregation in windows"),
    ],
)
def test_what_needs_a_whole_key_says_why(tmp_path: Path, computation: str, reason: str) -> None:
    assert reason in refused(tmp_path, f"{computation}, skew: scatter(4)")


def test_keys_of_two_inputs_are_not_divided(tmp_path: Path) -> None:
    assert "keys of one input" in refused(
        tmp_path, f"{PLAIN}, skew: scatter(4)", "{events: {key: k}, others: {key: k}}"
    )


def test_an_input_with_retractions_is_refused(tmp_path: Path) -> None:
    before = ", b: {input: {events: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, "
    before += "accumulation: retracting, allowed_lateness: 1m, output: b}"
    assert "its input carries retractions" in refused(
        tmp_path, f"{PLAIN}, skew: scatter(4)", "{b: {key: k}}", before
    )


def test_an_aggregate_of_ones_own_must_say_that_order_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from millwheel import Aggregator\nclass Kept(Aggregator):\n"
    code += (
        "    def create(self): return []\n    def add(self, acc, value, timestamp): return [*acc,"
        " value]\n"
    )
    code += "    def merge(self, acc, other): return [*acc, *other]\n"
    (tmp_path / "skew_own.py").write_text(code + "class Free(Kept):\n    ordered = False\n")
    own = (
        "window: {{tumbling: 1m}}, aggregate: {{n: {{'skew_own:{}': x}}}}, output: o, skew:"
        " scatter(4)"
    )
    assert "set ordered = False" in refused(tmp_path, own.format("Kept"))
    assert names(tmp_path, own.format("Free")) == ["partial.c", "c"]
