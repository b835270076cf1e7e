"""A window that can fire more than once says what its panes contain wherever only the newest row is
seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Once,
    OrFinally,
    Repeat,
    Trigger,
)
from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline, load_pipeline

HEAD = """
pipeline: p
streams:
  e: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  c: {input: {e: {key: k}}, window: {tumbling: 1m}, aggregate: {n: count}, output: o, %s}
"""
UPSERT = "sinks: {o: {files: {path: out, mode: upsert}}}"
REPLACING = {
    "files": UPSERT,
    "rolled files": "sinks: {o: {files: {path: out, mode: upsert, by: k}}}",
    "postgres": "sinks: {o: {postgres: {dsn: 'host=x', table: t, mode: upsert, "
    "by: [k, window_start]}}}",
    "kafka": "sinks: {o: {kafka: {brokers: 'x:1', topic: t, mode: upsert, key: k}}}",
    "delta": "sinks: {o: {delta: {path: t, mode: upsert, by: [k], fields: {k: str, n: int}}}}",
    "redis": "sinks: {o: {redis: {url: 'redis://x', key: '{k}'}}}",
    "behind steps": """
  d: {input: {o: {key: k}}, map: {k: k, n: n}, output: r}
  b: {input: {r: {key: k}}, branch: {q: n > 1}}
sinks: {q: {files: {path: out, mode: upsert}}}""",
    "a query": "queries: {q: {formula: c.n, key: [k]}}\nsinks: {o: {stdout: {}}}",
}  # fmt: skip
AGAIN = {
    "lateness": "allowed_lateness: 1m",
    "early": "trigger: {after_watermark: {early: {after_count: 5}}}",
    "late": "trigger: {after_watermark: {late: {after_count: 1}}}, allowed_lateness: 1m",
    "repeated": "trigger: {repeat: {after_processing_time: 1s}}",
    "each": "trigger: {each: [{after_count: 1}, {after_count: 2}]}",
    "refire": "late: refire",
}
ONCE = {
    "plain": "shards: 1",
    "on time": "trigger: after_watermark",
    "counted": "trigger: {after_count: 5}",
    "once": "trigger: {once: {repeat: {after_count: 5}}}",
    "any": "trigger: {any: [{after_count: 5}, {after_processing_time: 1s}]}",
}


def load(tmp_path: Path, option: str, rest: str) -> None:
    (tmp_path / "p.yaml").write_text(HEAD % option + rest)
    load_pipeline(str(tmp_path / "p.yaml"), {})


@pytest.mark.parametrize("sink", REPLACING)
def test_the_mode_must_be_written_where_a_row_replaces_another(tmp_path: Path, sink: str) -> None:
    with pytest.raises(PipelineError, match="write accumulation: accumulating"):
        load(tmp_path, AGAIN["lateness"], REPLACING[sink])
    load(tmp_path, f"{AGAIN['lateness']}, accumulation: discarding", REPLACING[sink])
    load(tmp_path, ONCE["plain"], REPLACING[sink])


@pytest.mark.parametrize("why", AGAIN)
def test_whatever_makes_a_window_fire_again_needs_the_mode(tmp_path: Path, why: str) -> None:
    with pytest.raises(PipelineError, match="can fire more than once"):
        load(tmp_path, AGAIN[why], UPSERT)
    with pytest.raises(PipelineError, match="questions are answered by the newest"):
        load(tmp_path, f"{AGAIN[why]}, queryable: latest", "sinks: {o: {stdout: {}}}")
    load(tmp_path, f"{AGAIN[why]}, accumulation: discarding", UPSERT)


@pytest.mark.parametrize("why", ONCE)
def test_a_window_that_fires_once_needs_none(tmp_path: Path, why: str) -> None:
    load(tmp_path, ONCE[why], UPSERT)


@pytest.mark.parametrize(
    "sink", ["{files: {path: out}}", "{files: {path: out, mode: changelog}}", "{stdout: {}}"]
)
def test_where_rows_are_added_the_default_holds(tmp_path: Path, sink: str) -> None:
    load(tmp_path, AGAIN["lateness"], f"sinks: {{o: {sink}}}")


def test_a_further_aggregation_adds_parts_up(tmp_path: Path) -> None:
    rest = """
  d: {input: {o: {key: k}}, window: {tumbling: 1h}, aggregate: {n: {sum: n}}, output: r}
sinks: {r: {files: {path: out, mode: upsert}}}"""
    load(tmp_path, AGAIN["lateness"], rest)


def test_a_trigger_that_may_go_on_is_not_said_to_fire_once() -> None:
    class Own(Trigger):
        pass

    one = AfterCount(1)
    once = [
        one,
        AfterProcessingTime(1),
        AfterWatermark(),
        Never(),
        Once(Repeat(one)),
        AfterAny(one, one),
    ]
    assert all(trigger.fires_once for trigger in [*once, AfterAll(one, one)])
    again = [
        Default(),
        Repeat(one),
        AfterEach(one, one),
        OrFinally(one, one),
        AfterAny(one, Repeat(one)),
        Own(),
    ]
    assert not any(
        trigger.fires_once
        for trigger in [*again, AfterWatermark(early=one), AfterWatermark(late=one)]
    )


CLOSES = {
    "on time": "after_watermark",
    "early": "{after_watermark: {early: {after_count: 2}}}",
    "share": "{after_percentile_watermark: 0.9}",
    "any": "{any: [{repeat: {after_count: 2}}, after_watermark]}",
    "until": "{or_finally: {main: {every: 1s}, until: after_watermark}}",
}


@pytest.mark.parametrize("trigger", CLOSES)
def test_lateness_that_a_closed_window_cannot_use_is_warned_of(
    tmp_path: Path, trigger: str
) -> None:
    options = f"trigger: {CLOSES[trigger]},\n    allowed_lateness: 1m"
    [warning] = lateness_warnings(tmp_path, HEAD % options)
    assert warning.startswith("p.yaml:7: computations.c.allowed_lateness: each window closes")
    assert "write late: {after_count: 1} in after_watermark" in warning
    assert not lateness_warnings(tmp_path, HEAD % f"trigger: {CLOSES[trigger]}")


@pytest.mark.parametrize(
    "trigger",
    [
        "default",
        "{after_watermark: {late: {after_count: 1}}}",
        "{repeat: after_watermark}",
        "{all: [after_watermark, {after_count: 3}]}",
    ],
)
def test_lateness_of_a_window_that_stays_open_is_not(tmp_path: Path, trigger: str) -> None:
    options = f"trigger: {trigger}, allowed_lateness: 1m"
    assert not lateness_warnings(tmp_path, HEAD % options)


def test_a_join_whose_window_closes_is_warned_of_too(tmp_path: Path) -> None:
    text = """
pipeline: p
streams:
  e: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
  f: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: {field: at, unit: us}}
computations:
  c:
    input: {e: {key: k}, f: {key: k}}
    window: {tumbling: 1m}
    join: inner
    trigger: {after_watermark: {early: {after_count: 1}}}
    allowed_lateness: 1m
    output: o
"""
    [warning] = lateness_warnings(tmp_path, text)
    assert warning.startswith("p.yaml:12: ")


def lateness_warnings(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "p.yaml").write_text(f"{text}\nsinks: {{o: {{stdout: {{}}}}}}\n")
    _, warnings = check_pipeline(str(tmp_path / "p.yaml"), {}, {})
    found = [each for each in warnings if "allowed_lateness" in each]
    return [each.removeprefix(f"{tmp_path}/") for each in found]
