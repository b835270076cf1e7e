"""In which order the shards of a worker run their bundles."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.engine.workers.shard.shard import Shard
from millwheel.testing import PipelineHarness

CHAIN = """
    pipeline: chain
    streams:
      begin: {source: {injection: {}}, timestamp: at}
    computations:
      last: {input: {early: {key: user}, middle: {key: user}}, steps: [{filter: "n > 0"}],
        output: end}
      second: {input: {early: {key: user}}, steps: [{filter: "n > 0"}], output: middle}
      first: {input: {begin: {key: user}}, steps: [{filter: "n > 0"}], output: early}
"""


def test_a_shard_runs_its_bundle_after_those_that_feed_it_and_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.yaml").write_text(dedent(CHAIN))
    bundles: list[str] = []
    right = Shard.run

    def run(self: Shard, now_us: int) -> Any:
        bundles.append(self.identity.node)
        return right(self, now_us)

    with PipelineHarness(tmp_path / "p.yaml", workers=1, shards=1) as harness:
        harness.push("begin", {"user": "a", "n": 1, "at": 1})
        monkeypatch.setattr(Shard, "run", run)
        harness.push("begin", {"user": "a", "n": 2, "at": 2})
    mine = [node for node in bundles if node in ("first", "second", "last")]
    assert mine[:3] == ["first", "second", "last"], (
        "what comes to the last on two ways is one bundle"
    )
    assert mine.count("last") == mine.count("first")
