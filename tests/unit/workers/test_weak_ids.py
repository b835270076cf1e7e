"""Ids of weak productions: what is made of one record on two ways is two records."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from millwheel.testing import PipelineHarness

PASS_ON = """
    from millwheel import Computation

    class To(Computation):
        def __init__(self, out):
            self.out = out

        def process_record(self, ctx, record):
            ctx.produce(self.out, {"user": ctx.key})
"""
PASS = r'callback: "to:To", options: {out: \1}, output: \1, productions: weak'
COUNT = "count: {input: {both: {key: user}}, window: global, aggregate: {n: count}, output: counts}"
TWO_WAYS = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      left: {input: {clicks: {key: user}}, PASS(a)}
      right: {input: {clicks: {key: user}}, PASS(b)}
      both: {input: {a: {key: user}, b: {key: user}}, PASS(both)}
      COUNT
"""
ONE_OUTPUT = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at}
    computations:
      left: {input: {clicks: {key: user}}, PASS(both)}
      right: {input: {clicks: {key: user}}, PASS(both)}
      COUNT
"""
TWO_STREAMS = """
    pipeline: ways
    streams:
      clicks: {source: {injection: {}}, timestamp: at, id: id}
      views: {source: {injection: {}}, timestamp: at, id: id}
    computations:
      all: {input: {clicks: {key: user}, views: {key: user}}, PASS(both)}
      COUNT
"""


@pytest.mark.parametrize(("text", "streams"), [(TWO_WAYS, 1), (ONE_OUTPUT, 1), (TWO_STREAMS, 2)])
def test_what_is_made_of_one_record_on_two_ways_is_two_records(tmp_path: Path, text: str, streams: int) -> None:
    (tmp_path / "to.py").write_text(dedent(PASS_ON))
    (tmp_path / "p.yaml").write_text(dedent(re.sub(r"PASS\((\w+)\)", PASS, text.replace("COUNT", COUNT))))
    with PipelineHarness(tmp_path / "p.yaml") as harness:
        for stream in ("clicks", "views")[:streams]:
            harness.push(stream, [{"user": "a", "at": 1, "id": 7}, {"user": "a", "at": 2, "id": 8}])
        harness.finish()
        assert [row["n"] for row in harness.read("counts")] == [4]
