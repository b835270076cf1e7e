"""What calls become, and what is said of wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import millwheel
from millwheel import agg
from millwheel.python.fluent.ends import OtherLookup, OtherSink, OtherSource, kind_of, param, secret
from millwheel.python.fluent.kinds import (
    FileSink,
    FileSource,
    GeneratorSource,
    HttpSource,
    InjectionSource,
    StdoutSink,
)
from millwheel.testing import PipelineHarness

# --- names ----------------------------------------------------------------------------------------


# --- code -----------------------------------------------------------------------------------------


# --- values ---------------------------------------------------------------------------------------


def test_a_parameter_may_stand_for_any_value(check: Any) -> None:
    text = (
        "hits.map('x', shards=param('n', 3)).write(FileSink(param('out') + '/x',"
        " flush=param('flush')))"
    )
    spec = check(text, {"out": "/there", "flush": "2s"})
    assert spec.computations[0].shards == 3
    assert spec.sinks[0].options == {"path": "/there/x", "flush": "2s"}
    assert check(text, {"out": "/there", "flush": "2s", "n": "5"}).computations[0].shards == 5


def test_the_public_names_are_the_same_objects_and_come_late() -> None:
    code = (
        "import sys, millwheel; assert 'millwheel.python.fluent' not in sys.modules;"
        " millwheel.Pipeline('p')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])
    assert set(millwheel.python.fluent.__all__) <= set(millwheel.__all__)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'pipe'"):
        millwheel.pipe  # type: ignore[attr-defined]


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\nhits.window(Tumbling('1m')).trigger(Never())",
            "p.py:6: this window does nothing; write .aggregate(",
        ),
        (
            "hits.window(Global()).aggregate({'n': agg.sum(len)})",
            "aggregate.n.sum: a builtin_function_or_method is not allowed",
        ),
        ("\nhits.filter('a = 1')", "p.py:6: computations.hits_filter.filter: column"),
        (
            "hits.key_by('a').window(5).aggregate()",
            "p.py:5: computations.hits_windows.window: must be a window such as",
        ),
        (
            "hits.window(Global()).trigger(5).aggregate()",
            "hits_windows.trigger: must be a trigger such as",
        ),
        (
            "hits.window(Tumbling('1m')).aggregate({'n': 5})",
            "aggregate.n: must be such as agg.count()",
        ),
        ("hits.window(Tumbling('1m')).aggregate({'n': 'cuont'})", "did you mean 'count'?"),
        ("hits.window(Tumbling('1m')).aggregate({'n': agg.top_k('x', 0)})", "aggregate.n: top_k"),
        (
            "p.stream('hist').map('x')",
            "p.py:5: computations.hist_map.input.hist: unknown stream 'hist'; did you mean",
        ),
        (
            "hits.map('x', name='a')\nhits.map('y', name='a')",
            "p.py:6: computations.a: this name is already in line 5",
        ),
        ("hits.map('x', name='a b')", "write for example a_b"),
        (
            "hits.write(StdoutSink())\nhits.write(StdoutSink())",
            "p.py:6: sinks.hits: this name is already in line 5",
        ),
        (
            "hits.write('out')",
            "p.py:5: sinks.hits: must be a sink such as FileSink('out') or StdoutSink(), not a str",
        ),
        (
            "p.read('more', 'x.jsonl')",
            "p.py:5: streams.more.source: must be a source such as FileSource(",
        ),
        (
            "p.read('more', FileSource('x', 'json'), timestamp='t')",
            "streams.more.source.files.format: ",
        ),
        ("p.read('more', FileSource('x', 'jsonl'))", "p.py:5: streams.more.timestamp: is missing"),
        (
            "p.read('m', FileSource('x', 'jsonl'), timestamp='t', max_delay=5)",
            "streams.m.watermark.max_delay: must be a dur",
        ),
        (
            "p.read('m', FileSource('x', 'jsonl'), timestamp='t', timestamp_unit='sec')",
            "must be one of us, ms, s",
        ),
        (
            "p.read('m', FileSource('x', 'jsonl'), timestamp='t', fields={'a': list})",
            "streams.m.fields.a: must be one of",
        ),
        (
            "hits.map('x', delivery='once')",
            "computations.hits_map.delivery: must be one of exactly_once",
        ),
        ("hits.map('x', shards=0)", "computations.hits_map.shards: must be a whole number"),
        (
            "hits.process(int)",
            (
                "computations.int.callback: builtins:int is not a class derived from"
                " millwheel.Computation"
            ),
        ),
        ("hits.process('codes:It')", "computations.It.callback: there is no module 'codes'"),
        ("hits.map(object())", "p.py:5: computations.hits_map.map: a object is not allowed here"),
        ("hits.flatten(hits).map('x')", "one flatten names the stream 'hits' twice"),
        (
            "hits.flatten(Pipeline('q').stream('x')).map('x')",
            "the stream 'x' belongs to another pipeline",
        ),
        (
            "hits.window(Tumbling('1m'), late='site').aggregate()",
            "computations.hits_windows.late: must be drop, refire",
        ),
        (
            "hits.map('x').write(FileSink('${nowhere}'))",
            "p.py:5: sinks.hits_map.files.path: ${nowhere} has no value",
        ),
        (
            "hits.key_by('window_start').window(Tumbling('1m')).aggregate({'n': 'count'})",
            (
                "input.hits.key: the results have the bounds of their own window as window_start"
                " and window_end, which"
            ),
        ),
        (
            "p.dead_letters.flatten(hits).map('x', output='dead_letters')",
            "'dead_letters' is filled by the system",
        ),
    ],
)
def test_mistakes_are_named_with_the_line_of_the_call(
    problems: Any, text: str, expected: str
) -> None:
    assert expected in "\n".join(problems(text))


def test_options_that_do_not_fit_the_constructor_are_named(problems: Any) -> None:
    text = (
        "class It(Computation):\n    def __init__(self, limit): pass\n    def process_record(self,"
        " ctx, record): pass\n"
    )
    (found,) = problems(text + "hits.process(It, options={'limits': 3})")
    assert found.startswith("p.py:8: computations.It.options: It cannot be built")
    assert "did you mean 'limit'?" in found


def test_functions_for_expressions_are_named_or_given(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(n): return n * 2\n")
    (tmp_path / "own.py").write_text(
        "from millwheel import InjectionSource, Pipeline, StdoutSink\n"
        "p = Pipeline('own', functions={'twice': 'mine:twice', 'more': lambda n: n + 1})\n"
        "hits = p.read('hits', InjectionSource(), timestamp='ts')\n"
        "hits.map({'x': 'twice(more(n))'}, output='out').write(StdoutSink())\n"
    )
    with PipelineHarness(str(tmp_path / "own.py")) as harness:
        harness.push("hits", [{"ts": 1, "n": 4}])
        harness.finish()
        assert harness.read("out") == [{"x": 10}]


def test_functions_of_arrays_and_nulls_of_sql_are_options(tmp_path: Path) -> None:
    (tmp_path / "arrays.py").write_text(
        "import pyarrow.compute as pc\n"
        "from millwheel import InjectionSource, Pipeline, StdoutSink\n"
        "def twice(numbers): return pc.multiply(numbers, 2)\n"
        "function = {'callable': twice, 'vectorized': True, 'returns': 'int'}\n"
        "p = Pipeline('arrays', functions={'twice': function}, nulls='sql')\n"
        "fields = {'ts': int, 'n': int}\n"
        "hits = p.read('hits', InjectionSource(), timestamp='ts', fields=fields)\n"
        "hits.map({'x': 'twice(n) + 1'}, output='out').write(StdoutSink())\n"
    )
    with PipelineHarness(str(tmp_path / "arrays.py")) as harness:
        harness.push("hits", [{"ts": 1, "n": 4}, {"ts": 2, "n": None}])
        harness.finish()
        assert harness.read("out") == [{"x": 9}, {"x": None}]


def test_fields_may_be_times(tmp_path: Path) -> None:
    (tmp_path / "timed.py").write_text(
        "from datetime import datetime\n"
        "from millwheel import InjectionSource, Pipeline, StdoutSink\n"
        "p = Pipeline('timed')\n"
        "fields = {'at': datetime, 'seen': {'type': 'timestamp', 'unit': 'ms'}}\n"
        "hits = p.read('hits', InjectionSource(), timestamp='at', fields=fields)\n"
        "hits.map({'waited': 'seen - at'}, output='out').write(StdoutSink())\n"
    )
    with PipelineHarness(str(tmp_path / "timed.py")) as harness:
        harness.push("hits", {"at": "1970-01-01T00:00:01Z", "seen": 1_500})
        assert harness.read("out") == [{"waited": 500_000}]


# agg.py: Aggregates of a pipeline in Python.


def test_aggregates_know_their_functions() -> None:
    from millwheel.core.aggregates.functions import FUNCTIONS

    assert set(agg.__all__) - {"Aggregate", "own"} == set(FUNCTIONS)


# ends.py


def test_only_what_was_given_is_an_option() -> None:
    """What is left out has the default of the source, which may change."""
    assert FileSource("a", "jsonl").options() == {"path": "a", "format": "jsonl"}
    assert FileSource("a", "csv", follow=False).options()["follow"] is False
    assert InjectionSource().options() == {}
    assert HttpSource(8080, max_requests=3).options() == {"port": 8080, "max_requests": 3}
    assert GeneratorSource(rate=0, count=5).options() == {"rate": 0, "count": 5}


def test_those_of_others_have_the_names_that_they_registered() -> None:
    settings = {"a": 1}
    for made in (
        OtherSource("theirs", settings),
        OtherSink("theirs", settings),
        OtherLookup("theirs", settings),
    ):
        assert (kind_of(made), made.options()) == ("theirs", settings)
        made.options()["a"] = 2
        assert made.options() == {"a": 1}
    assert (kind_of(FileSink("x")), kind_of(StdoutSink())) == ("files", "stdout")


def test_parameters_and_secrets_are_written_as_in_yaml() -> None:
    assert (param("a"), param("a", 5), secret("PG")) == ("${a}", "${a:-5}", "${secret:PG}")
