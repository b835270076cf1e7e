"""Who feeds whom: circles, streams that nobody fills or consumes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline, load_pipeline
from tests.unit.language.spec.parts.test_slices import read_query_file
from tests.unit.language.spec.test_pipelines import MINIMAL


def test_a_stream_that_is_declared_but_never_filled_cannot_be_consumed(problems: Any) -> None:
    found = problems(
        MINIMAL.replace("streams:\n", "streams:\n  later: {schema: 'detectors:Plain'}\n").replace(
            "input: hits", "input: later"
        )
    )
    assert any("nothing produces the stream 'later'" in problem for problem in found)


def test_without_any_source_nothing_would_happen(problems: Any) -> None:
    (found,) = problems("pipeline: p\nstreams: {a: {fields: {x: int}}}\n")
    assert "no stream has a source" in found


def test_a_cycle_needs_a_callback_with_timers(check: Any, problems: Any) -> None:
    text = MINIMAL.replace("input: hits", "input: [hits, out]")
    (found,) = problems(text)
    assert found.startswith("pipeline.yaml:5: computations.c.output: the cycle c -> c has no timer")
    assert (
        check(text.replace("SpikeDetector", "Ticker")).computations[0].called.callback
        == "detectors:Ticker"
    )


def test_a_longer_cycle_is_shown_once(problems: Any) -> None:
    more = "  d: {input: out, callback: detectors:SpikeDetector, output: back}\nsinks:"
    (found,) = problems(
        MINIMAL.replace("input: hits", "input: [hits, back]").replace("sinks:", more)
    )
    assert "the cycle c -> d -> c has no timer" in found


def test_a_longer_cycle_is_warned_about_and_one_of_a_single_computation_is_not(
    folder: Path,
) -> None:
    more = "  d: {input: out, callback: detectors:Ticker, output: back}\nsinks:"
    text = MINIMAL.replace("SpikeDetector", "Ticker")
    (folder / "long.yaml").write_text(
        text.replace("input: hits", "input: [hits, back]").replace("sinks:", more)
    )
    _, warnings = check_pipeline(folder / "long.yaml", {}, {})
    assert any(
        "event time stands still in the cycle c -> d -> c" in warning for warning in warnings
    )
    (folder / "short.yaml").write_text(text.replace("input: hits", "input: [hits, out]"))
    _, warnings = check_pipeline(folder / "short.yaml", {}, {})
    assert not any("stands still" in warning for warning in warnings)


def test_dead_letters_may_be_consumed_and_written_but_not_declared(
    check: Any, problems: Any
) -> None:
    assert check(MINIMAL.replace("input: hits", "input: [hits, dead_letters]"))
    assert check(MINIMAL.replace("{out:", "{dead_letters: {stdout: {}}, out:"))
    (found,) = problems(
        MINIMAL.replace("streams:\n", "streams:\n  dead_letters: {fields: {a: int}}\n")
    )
    assert "exists in every pipeline" in found


def test_two_producers_of_a_stream_are_merged(check: Any) -> None:
    more = "  d: {input: hits, callback: detectors:SpikeDetector, output: out}\nsinks:"
    assert len(check(MINIMAL.replace("sinks:", more)).computations) == 2


def test_what_nobody_consumes_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(MINIMAL.replace("sinks: {out: {stdout: {}}}", ""))
    with caplog.at_level(logging.WARNING):
        load_pipeline(file)
    assert "computations.c.output: nothing consumes the stream 'out'" in caplog.text


_FILES = 'files: {path: "in/*.jsonl", format: jsonl, follow: %s}'
_KAFKA = 'kafka: {brokers: "b:1", topics: [hits]%s}'


@pytest.mark.parametrize(
    ("source", "warns"),
    [
        (_FILES % "true", True),
        (_FILES % "false", False),
        (_KAFKA % "", True),
        (_KAFKA % ", until: latest", False),
        ("generator: {rate: 1}", True),
        ("generator: {rate: 1, count: 5}", False),
    ],
)
def test_a_global_window_of_input_without_end_is_worth_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, warns: bool
) -> None:
    text = f"""
pipeline: p
streams:
  h: {{source: {{{source}}}, timestamp: timestamp}}
computations:
  c: {{input: {{h: {{key: k}}}}, window: global, aggregate: {{n: count}}, output: out}}
sinks: {{out: {{stdout: {{}}}}}}
"""
    (tmp_path / "p.yaml").write_text(text)
    with caplog.at_level(logging.WARNING):
        load_pipeline(tmp_path / "p.yaml")
    assert (
        any("a global window fires at the end of its input" in line for line in caplog.messages)
        == warns
    )


OF_INPUT = """
pipeline: p
streams: {hits: {source: injection, timestamp: ts}}
computations:
  counted: {input: {hits: {key: k}}, window: {count: 3}, aggregate: {n: count}, output: counts}
  few: {input: counts, filter: "n < 3", output: small}
  again:
    input: {small: {key: n}}
    window: {of: input}
    aggregate: {keys: count}
    output: out
sinks: {out: {stdout: {}}}
"""


def test_windows_of_results_do_not_follow_windows_that_the_watermark_overtakes(
    check: Any, problems: Any
) -> None:
    (found,) = problems(OF_INPUT)
    assert found.startswith("pipeline.yaml:9: computations.again.window: counted has count windows")
    assert "write output_time: earliest there" in found
    held = OF_INPUT.replace("{n: count}, output", "{n: count}, output_time: earliest, output")
    assert check(held).computations[2].windowed.window.kind == "of"
    assert check(OF_INPUT.replace("{count: 3}", "{session: 3s}"))


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_windows_of_results_do_not_follow_a_join_that_passes_these_on_later(
    check: Any, problems: Any, kind: str
) -> None:
    joined = f"""  alone:
    input: {{counts: {{key: k}}, hits: {{key: k}}}}
    window: {{session: 5s}}
    join: {kind}
    output: lone
  few: {{input: lone, filter"""
    text = OF_INPUT.replace("  few: {input: counts, filter", joined).replace(
        "{count: 3}", "{tumbling: 3s}"
    )
    (found,) = problems(text)
    assert "computations.again.window: alone passes results of windows on once" in found
    assert "window: {of: input} in alone, too" in found
    near = f"join: {{kind: {kind}, within: {{before: 1s, after: 1s}}}}"
    within = text.replace("    window: {session: 5s}\n", "").replace(f"join: {kind}", near)
    assert "alone passes results" in "".join(problems(within))
    assert "alone passes results" in "".join(
        problems(within.replace(", within: {before: 1s, after: 1s}", ""))
    )
    of_hits = text.replace("{input: {small: {key: n}}", "{input: {small: {key: k}}")
    assert check(of_hits.replace("window: {of: input}", "window: {tumbling: 1h}"))


# queries.py: Named queries that ask for what is not there are refused before anything starts.


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ("{cpc: {formula: clikcs.n}}", "clikcs.*clicks"),
        ("{cpc: {formula: clicks.m}}", "unknown value of clicks 'm'"),
        ("{cpc: {formula: clicks}}", "has 2 values; name one, such as clicks.n"),
        ("{cpc: {formula: clicks.n, window: 2d}}", "longer than clicks keeps its slices, 1d"),
        ("{clicks: {formula: clicks.n}}", "the name of a computation"),
        ("{cpc: {formula: clicks.n, keys: {views: ad}}}", "does not ask"),
        ("{cpc: {formula: clicks.n, key: [site], keys: {clicks: ad}}}", "not part of key"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, queries: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read_query_file(tmp_path, queries)


@pytest.mark.parametrize(
    ("fields", "warned"), [("n: int", True), ("window_start: int, window_end: int", False)]
)
def test_a_window_of_the_input_of_a_source_is_warned_of(
    tmp_path: Path, fields: str, warned: bool
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: p\nstreams:\n"
        f"  a: {{source: {{injection: {{}}}}, timestamp: at, fields: {{{fields}}}}}\n"
        "sinks: {out: {stdout: {}}}\ncomputations:\n"
        "  c: {input: {a: {key: n}}, window: {of: input}, aggregate: {k: count}, output: out}\n",
        encoding="utf-8",
    )
    warnings = check_pipeline(file)[1]
    assert [each for each in warnings if "a comes from a source, not from a window" in each] == (
        warnings if warned else []
    )
    assert not warned or "p.yaml:6: computations.c.window: " in warnings[0]
