"""What calls become, and what is said of wrong ones."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millwheel
from millwheel import (
    AfterAny,
    AfterCount,
    FileSink,
    FileSource,
    Global,
    InjectionSource,
    Pipeline,
    Repeat,
    Trigger,
    agg,
    param,
)
from millwheel.core.machines.specs import machine_from_spec
from millwheel.core.pipeline.spec import ComputationSpec, KeyKind, KeySpec
from millwheel.errors import PipelineError
from millwheel.spec.loading import load_object


def one(check: Any, text: str, **more: Any) -> ComputationSpec:
    return check(text, **more).computations[0]


def small() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("small")
    return pipeline, pipeline.read("hits", InjectionSource(), timestamp="ts")


# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name", "output"),
    [
        ("hits.map('x')", "hits_map", "hits_map"),
        ("hits.map('x', name='shape')", "shape", "shape"),
        ("hits.map('x', output='pages')", "pages", "pages"),
        ("hits.map('x', name='shape', output='pages')", "shape", "pages"),
        ("hits.window(Global()).aggregate()", "hits_windows", "hits_windows"),
    ],
)
def test_a_computation_is_named_after_its_output_unless_it_has_a_name(
    check: Any, call: str, name: str, output: str
) -> None:
    found = one(check, call)
    assert (found.name, found.outputs) == (name, (output,))


def test_computations_with_the_same_output_get_names_of_their_own(check: Any) -> None:
    spec = check("hits.map('x', output='all')\nhits.filter('y', output='all')\nhits.filter('z')\nhits.filter('w')\n")
    assert [each.name for each in spec.computations] == ["all", "all_2", "hits_filter", "hits_filter_2"]
    assert [each.outputs for each in spec.computations] == [("all",), ("all",), ("hits_filter",), ("hits_filter_2",)]


def test_every_computation_knows_the_line_of_its_call(check: Any, tmp_path: Path) -> None:
    found = check("hits.map('x')\n\nhits.key_by('a').filter('y')\n").computations
    assert [each.where for each in found] == [f"{tmp_path}/p.py:5", f"{tmp_path}/p.py:7"]


# --- code ------------------------------------------------------------------------------------------------


def test_functions_are_found_by_their_own_name_or_by_that_of_their_computation(check: Any, tmp_path: Path) -> None:
    text = "def named(value): return 1\ndef make():\n    def nested(value): return 2\n    return nested\n"
    text += "hits.map(named)\nhits.map(lambda value: 3, name='by-lambda')\nhits.map(make(), name='nested')\n"
    text += "hits.key_by(lambda value: 4).map(lambda value: 5, name='keyed')\n"
    spec = check(text)
    steps = [each.steps[0].function for each in spec.computations]
    assert steps == ["p:named", "p:p.code.by_lambda_map", "p:p.code.nested_map", "p:p.code.keyed_map"]
    assert [load_object(name, str(tmp_path))(None) for name in steps] == [1, 3, 2, 5]
    key = spec.computations[3].inputs[0].key
    assert key == KeySpec(KeyKind.FUNCTION, ("p:p.code.keyed_key",))
    assert load_object(key.names[0], str(tmp_path))(None) == 4


def test_a_process_that_imports_the_file_again_finds_the_same_functions(check: Any, tmp_path: Path) -> None:
    found = one(check, "hits.map(lambda value: value + 1, name='more')")
    code = f"from millwheel.spec.loading import load_object as load; print(load({found.steps[0].function!r}, '.')(41))"
    repository = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": repository},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "42", done.stderr


def test_a_pipeline_without_a_file_is_a_spec_too() -> None:
    pipeline, hits = small()
    hits.map(lambda value: value * 2, name="twice")
    (twice,) = pipeline.spec().computations
    assert load_object(twice.steps[0].function, "/nowhere")(21) == 42
    assert twice.where.startswith(f"{__file__}:")


class EveryOther(Trigger):
    def ready(self, state: Any, moment: Any) -> bool:
        return bool(state >= 2)

    def add(self, state: Any, records: int, size: int, moment: Any) -> Any:
        return state + records


class Odd:
    def __init__(self, size: int) -> None:
        self.size = size

    def assign(self, timestamp: int) -> list[tuple[int, int]]:
        return [(timestamp, timestamp + self.size)]


def test_windows_and_triggers_of_ones_own_are_objects() -> None:
    pipeline, hits = small()
    hits.window(Odd(7)).aggregate({"n": "count"}, name="own_window")
    every_other = Repeat(EveryOther())
    hits.window(Global()).trigger(AfterAny(every_other, AfterCount(9))).aggregate({"n": "count"}, name="own_trigger")
    window, trigger = pipeline.spec().computations

    def load(name: str) -> Any:
        return load_object(name, "/nowhere")

    machine = machine_from_spec(window, lambda text: None, load)
    assert machine.windowing.window.assign(3) == [(3, 10)]  # type: ignore[attr-defined]
    machine = machine_from_spec(trigger, lambda text: None, load)
    assert machine.windowing.trigger == AfterAny(every_other, AfterCount(9))  # type: ignore[attr-defined]


# --- values ----------------------------------------------------------------------------------------------


def test_a_parameter_may_stand_for_any_value(check: Any) -> None:
    text = "hits.map('x', shards=param('n', 3)).write(FileSink(param('out') + '/x', flush=param('flush')))"
    spec = check(text, {"out": "/there", "flush": "2s"})
    assert spec.computations[0].shards == 3
    assert spec.sinks[0].options == {"path": "/there/x", "flush": "2s"}
    assert check(text, {"out": "/there", "flush": "2s", "n": "5"}).computations[0].shards == 5


def test_durations_are_text_or_timedeltas() -> None:
    pipeline = Pipeline("p")
    pipeline.read("a", FileSource("x", "jsonl"), timestamp="t", max_delay=timedelta(minutes=2), idle_after="3s")
    found = pipeline.spec().streams[0]
    assert (found.max_delay_us, found.idle_after_us) == (120_000_000, 3_000_000)


def test_the_public_names_are_the_same_objects_and_come_late() -> None:
    code = "import sys, millwheel; assert 'millwheel.fluent' not in sys.modules; millwheel.Pipeline('p')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
    assert set(millwheel.fluent.__all__) <= set(millwheel.__all__)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'pipe'"):
        millwheel.pipe  # type: ignore[attr-defined]


def test_steps_of_a_flattened_stream_read_all_of_them() -> None:
    pipeline, hits = small()
    clicks = pipeline.read("clicks", InjectionSource(), timestamp="ts")
    hits.flatten(clicks).key_by("user").filter("x > 1", name="both")
    hits.key_by("a").flatten(clicks.key_by("b"), pipeline.dead_letters).map("x", name="own")
    pipeline.flatten(hits, clicks.key_by("b")).map("x", name="mixed")
    both, own, mixed = ({g.stream: g.key.names for g in each.inputs} for each in pipeline.spec().computations)
    assert both == {"hits": ("user",), "clicks": ("user",)}
    assert own == {"hits": ("a",), "clicks": ("b",), "dead_letters": ()}
    assert mixed == {"hits": (), "clicks": ("b",)}


# --- mistakes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nhits.window(Tumbling('1m')).trigger(Never())", "p.py:6: this window does nothing; write .aggregate("),
        (
            "hits.window(Global()).aggregate({'n': agg.sum(len)})",
            "aggregate.n.sum: a builtin_function_or_method cannot",
        ),
        ("\nhits.filter('a = 1')", "p.py:6: computations.hits_filter.filter: column"),
        (
            "hits.key_by('a').window(5).aggregate()",
            "p.py:5: computations.hits_windows.window: must be a window such as",
        ),
        ("hits.window(Global()).trigger(5).aggregate()", "hits_windows.trigger: must be a trigger such as"),
        ("hits.window(Tumbling('1m')).aggregate({'n': 5})", "aggregate.n: must be such as agg.count()"),
        ("hits.window(Tumbling('1m')).aggregate({'n': 'cuont'})", "did you mean 'count'?"),
        ("hits.window(Tumbling('1m')).aggregate({'n': agg.top_k('x', 0)})", "aggregate.n: top_k"),
        ("p.stream('hist').map('x')", "p.py:5: computations.hist_map.input.hist: unknown stream 'hist'; did you mean"),
        ("hits.map('x', name='a')\nhits.map('y', name='a')", "p.py:6: computations.a: this name was given in line 5"),
        ("hits.map('x', name='a b')", "write for example a_b"),
        ("hits.write(StdoutSink())\nhits.write(StdoutSink())", "p.py:6: sinks.hits: this name was given in line 5"),
        ("hits.write('out')", "p.py:5: sinks.hits: must be a sink such as FileSink('out') or StdoutSink(), not a str"),
        ("p.read('more', 'x.jsonl')", "p.py:5: streams.more.source: must be a source such as FileSource("),
        ("p.read('more', FileSource('x', 'json'), timestamp='t')", "streams.more.source.files.format: "),
        ("p.read('more', FileSource('x', 'jsonl'))", "p.py:5: streams.more.timestamp: is missing"),
        (
            "p.read('m', FileSource('x', 'jsonl'), timestamp='t', max_delay=5)",
            "streams.m.watermark.max_delay: must be a dur",
        ),
        ("p.read('m', FileSource('x', 'jsonl'), timestamp='t', timestamp_unit='sec')", "must be one of us, ms, s"),
        (
            "p.read('m', FileSource('x', 'jsonl'), timestamp='t', fields={'a': list})",
            "streams.m.fields.a: must be one of",
        ),
        ("hits.map('x', delivery='once')", "computations.hits_map.delivery: must be one of exactly_once"),
        ("hits.map('x', shards=0)", "computations.hits_map.shards: must be a whole number"),
        ("hits.process(int)", "computations.int.callback: builtins:int is no class derived from millwheel.Computation"),
        ("hits.process('codes:It')", "computations.It.callback: there is no module 'codes'"),
        ("hits.map(object())", "p.py:5: computations.hits_map.map: a object cannot stand here"),
        ("hits.flatten(hits).map('x')", "the stream 'hits' is named twice in one flatten"),
        ("hits.flatten(Pipeline('q').stream('x')).map('x')", "the stream 'x' belongs to another pipeline"),
        (
            "hits.window(Tumbling('1m'), late='site').aggregate()",
            "computations.hits_windows.late: must be drop, refire",
        ),
        ("hits.map('x').write(FileSink('${nowhere}'))", "p.py:5: sinks.hits_map.files.path: ${nowhere} has no value"),
        (
            "hits.key_by('window_start').window(Tumbling('1m')).aggregate({'n': 'count'})",
            "input.hits.key: the results have the bounds of their own window as window_start and window_end, which",
        ),
        ("p.dead_letters.flatten(hits).map('x', output='dead_letters')", "'dead_letters' is filled by the system"),
    ],
)
def test_mistakes_are_named_with_the_line_of_the_call(problems: Any, text: str, expected: str) -> None:
    assert expected in "\n".join(problems(text))


def test_all_mistakes_are_told_at_once(problems: Any) -> None:
    assert len(problems("hits.map('a =', name='a')\nhits.write(5)\nhits.map('x', shards=0, name='b')\n")) == 3


def test_options_that_do_not_fit_the_constructor_are_named(problems: Any) -> None:
    text = (
        "class It(Computation):\n    def __init__(self, limit): pass\n    def process_record(self, ctx, record): pass\n"
    )
    (found,) = problems(text + "hits.process(It, options={'limits': 3})")
    assert found.startswith("p.py:8: computations.It.options: It cannot be made")
    assert "did you mean 'limit'?" in found


def test_a_pipeline_that_reads_nothing_is_told_so(problems: Any) -> None:
    head = "from millwheel import Pipeline\n\np = Pipeline('p')\n"
    assert problems("", head=head) == [
        "p.py:3: streams: the pipeline reads nothing; "
        "write for example read('hits', FileSource('hits.jsonl', 'jsonl'), …)"
    ]


def test_a_call_in_another_file_is_named_there(problems: Any, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("def add(stream):\n    stream.map('x =', name='far')\n")
    (found,) = problems("from more import add\nadd(hits)\n")
    assert found.startswith("more.py:2: computations.far.map: column")


def test_a_spec_of_a_wrong_pipeline_is_an_error() -> None:
    pipeline, hits = small()
    hits.filter("a =").write(FileSink(param("out")))
    with pytest.raises(PipelineError, match=r"test_pipeline\.py:\d+: computations\.hits_filter\.filter: column"):
        pipeline.spec({"out": "x"})


def test_aggregates_know_their_functions() -> None:
    from millwheel.core.aggregates.functions import FUNCTIONS

    assert set(agg.__all__) - {"Aggregate", "own"} == set(FUNCTIONS)
