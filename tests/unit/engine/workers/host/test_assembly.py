from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.kinds import build_sink, build_source
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness
from millwheel.tools.testing.memory.cluster import ManualClock

SECOND = 1_000_000
PIPELINE = """pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, id: {field: id, horizon: 30s}}
computations:
  twice: {input: {hits: {key: k}}, window: {count: 2}, output: twice%s}
  both: {input: {twice: {key: k}, hits: {key: k}}, window: {session: 15s}, late: {side: behind},
    output: both}
"""


@pytest.mark.parametrize(("productions", "forgotten"), [("", True), (", productions: weak", False)])
def test_only_streams_with_ids_say_how_long_ids_are_remembered(
    tmp_path: Path, productions: str, forgotten: bool
) -> None:
    """The ids of weak productions have a horizon of an hour; other streams of computations have no
    ids at all."""
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE % productions)
    with PipelineHarness(str(file)) as harness:
        hit = {"at": SECOND, "k": "a", "id": "1"}
        harness.push("hits", hit)
        harness.advance_watermark(1_000 * SECOND)
        harness.push("hits", hit)
        assert len(harness.read("behind")) == forgotten


WINDOWS = (
    "tumbling: 10s",
    "sliding: 20s, every: 10s",
    "sliding: 20s, every: 5s, emit: changes",
    "count: 3",
    "session: 2s",
    "cumulative: 20s, every: 10s",
)


@pytest.mark.parametrize("window", WINDOWS)
def test_plans_of_every_kind_of_windows_are_warmed_up(tmp_path: Path, window: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"""pipeline: p
streams:
  hits: {{source: {{injection: {{}}}}, timestamp: at, fields: {{at: int, k: str}}}}
computations:
  c: {{input: {{hits: {{key: k}}}}, window: {{{window}}}, aggregate: {{n: count}}, output: out}}
""")
    assembly = Assembly(
        load_pipeline(file), str(tmp_path), ManualClock(0), Factories(build_source, build_sink)
    )
    assert assembly._plans.keys() == {"c"}
    assembly.warm_up()


def test_made_up_records_that_a_calculation_cannot_use_end_no_worker(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("""pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, fields: {at: int, k: str, n: int}}
computations:
  c: {input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {a: {sum: "60 / n"}},
    output: out}
""")
    assembly = Assembly(
        load_pipeline(file), str(tmp_path), ManualClock(0), Factories(build_source, build_sink)
    )
    assert assembly._plans.keys() == {"c"}
    assembly.warm_up()
