"""Which event-time timers of a callback come before a record is a function of the file that it comes from."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec, SourceSpec, StreamSpec
from millwheel.testing import PipelineHarness
from tests.sim.workloads.base import by
from tests.sim.workloads.placed import reminded, taken

_CODE = "tests.sim.workloads.placed:Reminding"


def _rows(count: int) -> list[dict[str, Any]]:
    rng, at, rows = random.Random(count), 1_000 * SECOND, []
    for n in range(count):
        at += rng.randint(0, SECOND)
        user = f"u{rng.randrange(9)}"
        do = rng.choice(["move", "move", "move", "past", "clear"])
        after = -rng.randint(0, 4 * SECOND) if do == "past" else rng.randint(1, 9 * SECOND)
        rows.append(
            {"u": user, "g": f"{user}'", "h": 0, "n": n, "do": do, "after": after, "ts": at - rng.randint(0, SECOND)}
        )
    return rows


def _pipeline(folder: Path, rows: list[dict[str, Any]]) -> PipelineSpec:
    (folder / "in.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    source = SourceSpec("files", {"path": str(folder / "in.jsonl"), "format": "jsonl"})
    stream = StreamSpec("events", source, "ts", max_delay_us=2 * SECOND)
    a = ComputationSpec(
        "a",
        (InputSpec("events", by("u")),),
        ("reminders", "seen"),
        callback=_CODE,
        options={"told": "reminders", "passed_on": "seen"},
    )
    b = ComputationSpec("b", (InputSpec("seen", by("g")),), ("said",), callback=_CODE, options={"told": "said"})
    streams = (stream, *(StreamSpec(name) for name in ("reminders", "seen", "said")))
    return PipelineSpec("p", streams, (a, b), (), str(folder))


def _told(rows: list[Any]) -> Counter[Any]:
    return Counter((row["key"], row["tag"], row["at"], row["items"]) for row in rows)


@pytest.mark.parametrize("crash_every", [None, 20], ids=["calm", "crashes"])
@pytest.mark.parametrize("shards", [1, 3])
def test_timers_come_among_records_by_the_watermark_at_their_line_also_behind_another_callback(
    tmp_path: Path, shards: int, crash_every: int | None
) -> None:
    rows = _rows(400)
    spec = _pipeline(tmp_path, rows)
    with PipelineHarness(spec, run_sources=True, shards=shards, crash_every=crash_every) as harness:
        harness.advance_processing_time(SECOND)
        told, passed_on = reminded(taken(rows), "u")
        assert _told(harness.read("reminders")) == told
        assert _told(harness.read("said")) == reminded(passed_on, "g")[0]
