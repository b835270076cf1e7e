"""Calls of user code are tried again, and become dead letters."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import key_hash
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import Due
from millwheel.engine.workers.bundle.hangs import (
    Avoided,
    timer_mark,
)
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.bundle.test_hangs import hang

CODE = """
    from millwheel import Computation, ValueState

    class Ringing(Computation):
        seen = ValueState(int, default=0)

        def process_record(self, ctx, record):
            self.seen.set(self.seen.get() + 1)
            ctx.set_timer("t", record.timestamp + 1_000_000)
            ctx.produce("out", {"n": record.value["n"]})

        def process_timer(self, ctx, timer):
            ctx.produce("out", {"rung": timer.key})
"""


PIPELINE = """
    pipeline: hanging
    streams:
      given: {source: injection, timestamp: ts}
    computations:
      work: {input: {given: {key: user}}, callback: "ringing_code:Ringing", output: out}
    sinks:
      out: {stdout: {}}
      dead_letters: {stdout: {}}
"""


def test_a_timer_and_a_record_that_did_not_return_are_dead_letters_and_the_others_are_called(
    tmp_path: Path,
) -> None:
    (tmp_path / "ringing_code.py").write_text(textwrap.dedent(CODE))
    (tmp_path / "p.yaml").write_text(textwrap.dedent(PIPELINE))
    with PipelineHarness(str(tmp_path / "p.yaml")) as harness:
        shard: Any = harness._open().shard_of("work", key_hash("ann"))
        harness.push("given", {"user": "ann", "ts": 1_000_000, "n": 0})
        harness.read("out")
        [(channel, known)] = shard._inbox._channels.items()
        marks = [
            timer_mark(Due("ann", "t", 2_000_000, Domain.EVENT)),
            encode_value(("r", channel, known.accepted + 1)),
        ]
        shard.operator.avoid(Avoided({mark: hang(mark) for mark in marks}))
        harness.push("given", {"user": "ann", "ts": 1_000_000, "n": 1})
        harness.push("given", {"user": "bob", "ts": 1_000_000, "n": 2})
        harness.advance_watermark(10_000_000)
        assert harness.read("out") == [{"n": 0}, {"n": 2}, {"rung": "bob"}]
        letters = harness.read("dead_letters")
        assert sorted(letter["key"] for letter in letters) == ["ann", "ann"]
        assert all("did not return within 1m" in letter["reason"] for letter in letters)
        assert {letter["location"] for letter in letters} == {"code.py:3 in slow"}
        assert harness.state("work", "ann")["seen"] == 1
