"""Which computations are chained, and why others are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.core.order.chains import Chains, chains_of
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.language.spec import load_pipeline

HEAD = """
pipeline: p
streams:
  raw: {source: {files: {path: in, format: jsonl}}, timestamp: at}
  other: {source: {files: {path: in, format: jsonl}}, timestamp: at}
"""
FIRST = "  a: {input: {raw: {key: k}}, map: {k: k, n: n}, output: mid}\n"
SECOND = "  b: {input: mid, filter: n > 1, output: out}\n"


def chains(tmp_path: Path, computations: str, more: str = "", labelled: str = "") -> Chains:
    path = tmp_path / "pipeline.yaml"
    sink = "" if "sinks:" in more else "sinks: {out: {stdout: {}}}\n"
    path.write_text(f"{HEAD}computations:\n{computations}{sink}{more}")
    (tmp_path / "mine.py").write_text("def odd(value):\n    return value['n'] % 2\n")
    spec = load_pipeline(str(path))
    return chains_of(build_graph(spec), spec, labelled.split())


def test_steps_and_branches_run_in_the_shards_of_the_first(tmp_path: Path) -> None:
    ways = "  w: {input: out, branch: {low: n < 5, high: otherwise}}\n"
    last = "  l: {input: low, map: {n: n + 1}, output: end}\n"
    counts = (
        "  c: {input: {high: {key: n}}, window: {tumbling: 1m}, aggregate: {m: count},"
        " output: counts}\n"
        "  d: {input: counts, filter: m > 1, output: e}\n"
    )
    sinks = "sinks: {end: {stdout: {}}, e: {stdout: {}}}\n"
    found = chains(tmp_path, FIRST + SECOND + ways + last + counts, sinks)
    assert found.before == {"b": "a", "w": "b", "l": "w", "d": "c"}
    assert found.why_not == {}
    assert [found.head(name) for name in "abwlcd"] == ["a", "a", "a", "a", "c", "c"]


def test_no_function_of_the_users_is_chained_behind_state(tmp_path: Path) -> None:
    windows = "window: {tumbling: 1m}, aggregate: {n: count}"
    counts = f"  a: {{input: {{raw: {{key: k}}}}, {windows}, output: mid}}\n"
    assert chains(tmp_path, counts + SECOND).before == {"b": "a"}
    found = chains(tmp_path, counts + SECOND, "functions: {odd: 'mine:odd'}\n")
    assert found.why_not == {"b": "functions of your own may be called for a result"}
    steps = FIRST + SECOND
    assert chains(tmp_path, steps, "functions: {odd: 'mine:odd'}\n").before == {"b": "a"}


READ = "  a: {input: raw, map: {k: k, n: n}, output: mid}\n"
"""Steps that take records as they are read."""


def test_steps_run_in_the_shards_of_the_source_whose_records_only_they_take(tmp_path: Path) -> None:
    found = chains(tmp_path, READ + SECOND)
    assert found == Chains({"a": "source.raw", "b": "a"})
    assert found.head("b") == "source.raw"
    assert chains(tmp_path, FIRST + SECOND) == Chains({"b": "a"})


UNREAD = {
    "others take the records that are read, too": (
        READ + "  c: {input: {raw: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count},"
        " output: counts}\n"
    ),
    "it has shards of its own": READ.replace("output", "shards: 3, output"),
    "it has a guarantee of its own": READ.replace("output", "delivery: at_least_once, output"),
    "code of your own takes each record": READ.replace("map: {k: k, n: n}", "map: mine:odd"),
}


@pytest.mark.parametrize("why", UNREAD)
def test_others_get_what_a_source_sends(tmp_path: Path, why: str) -> None:
    found = chains(tmp_path, UNREAD[why].replace("output: mid", "output: out"))
    assert found == Chains({}, {"a": why})


def test_nothing_with_ids_or_functions_is_chained_behind_a_source(tmp_path: Path) -> None:
    functions = "functions: {odd: 'mine:odd'}\n"
    found = chains(tmp_path, READ + SECOND, functions)
    assert found.why_not["a"] == "functions of your own may be called for a record"
    first = READ.replace("raw", "named") + SECOND
    named = HEAD + "  named: {source: {files: {path: in, format: jsonl}}, timestamp: at, id: i}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.HEAD", named)
        found = chains(tmp_path, first)
    assert found.why_not["a"] == "copies are recognized by the ids of records"


APART = {
    "it takes 2 streams": (
        FIRST + "  b: {input: {mid: {}, other: {key: k}}, filter: n > 1, output: out}\n"
    ),
    "a and x fill mid": (
        FIRST + "  x: {input: {other: {key: k}}, map: {k: k, n: n}, output: mid}\n" + SECOND
    ),
    "it has a key of its own": FIRST + SECOND.replace("mid", "{mid: {key: n}}"),
    "weak productions have ids": FIRST.replace("output", "productions: weak, output") + SECOND,
    "records wait for their order": FIRST.replace("output", "order_by: timestamp, output") + SECOND,
    "it has a guarantee of its own": (
        FIRST + SECOND.replace("output", "delivery: at_least_once, output")
    ),
    "it has shards of its own": FIRST + SECOND.replace("output", "shards: 3, output"),
    "code of your own takes each record": FIRST + SECOND.replace("n > 1", "mine:odd"),
}


@pytest.mark.parametrize("why", APART)
def test_others_have_shards_of_their_own(tmp_path: Path, why: str) -> None:
    found = chains(tmp_path, APART[why])
    assert found.before == {}
    assert found.why_not == {"b": why}


def test_records_that_are_traced_or_labelled_are_not_chained(tmp_path: Path) -> None:
    assert chains(tmp_path, FIRST + SECOND).before == {"b": "a"}
    labels = chains(tmp_path, FIRST + SECOND, labelled="b")
    assert labels.why_not == {"b": "timers behind it depend on the position of each record"}
    traced = chains(tmp_path, FIRST + SECOND, "tracing: {sample: 0.01}\n")
    assert traced.why_not == {"b": "records are traced"}


WAITING = """
from millwheel.api import Computation

class Waiting(Computation):
    def process_record(self, ctx, record):
        ctx.set_timer("again", ctx.timestamp + 1)

    def process_timer(self, ctx, timer):
        ctx.produce("mid", {"k": 1, "n": 2})
"""


def test_a_circle_is_no_chain(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    found = chains(
        tmp_path,
        "  w: {input: {raw: {key: k}, back: {}}, callback: waiting:Waiting, output: mid}\n"
        "  a: {input: mid, filter: n > 1, output: between}\n"
        "  b: {input: between, branch: {back: n > 3, out: otherwise}}\n",
    )
    assert found.before == {}
    assert found.why_not == dict.fromkeys("ab", "its records come back to it")


SINK = "sinks: {out: {files: {path: x, format: jsonl}}}\n"
ELSEWHERE = "  w: {input: mid, branch: {low: n < 5, high: otherwise}}\n"


def test_a_sink_of_files_is_chained_behind_a_chain_that_makes_nothing_else(tmp_path: Path) -> None:
    found = chains(tmp_path, READ + SECOND, SINK)
    assert found == Chains({"a": "source.raw", "b": "a", "sink.out": "b"})
    assert found.head("sink.out") == "source.raw"
    spec = load_pipeline(str(tmp_path / "pipeline.yaml"))
    own = replace(spec.sinks[0], key=KeySpec(KeyKind.FIELDS, ("n",)))
    keyed = replace(spec, sinks=(own, *spec.sinks[1:]))
    why = chains_of(build_graph(keyed), keyed, ()).why_not
    assert why == {"sink.out": "it has a key of its own"}
    assert chains(tmp_path, FIRST + SECOND, SINK).before == {"b": "a"}  # a has shards of its own
    latest = SINK.replace("jsonl}", "jsonl, mode: upsert}")
    assert chains(tmp_path, READ + SECOND, latest).why_not == {"sink.out": "its mode is upsert"}
    more = SINK.replace("}}}", "}}, low: {stdout: {}}, high: {stdout: {}}}")
    found = chains(tmp_path, READ + SECOND + ELSEWHERE, more)
    assert found.why_not == {"sink.out": "others take results of the chain, too"}
