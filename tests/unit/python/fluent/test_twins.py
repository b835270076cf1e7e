"""A pipeline in YAML and its twin in Python are equal specs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.spec import load_pipeline

EXAMPLES = Path(__file__).parents[4] / "examples"
PARAMS = {"input": "data/*", "output": "out"}

YAML = """\
pipeline: everything
streams:
  hits:
    source: {files: {path: ["a/*.csv", b], format: csv, delimiter: ";", columns: [id, t, path],
      follow: true}}
    timestamp: {field: "codes:when", unit: ms}
    id: id
    watermark: {max_delay: 1m30s, idle_after: never, max_future: 2d}
    schema: codes:Hit
    fields: {size: int}
  made: {source: {generator: {rate: 5, count: 10, factory: "codes:make"}}, id: {field: id,
    horizon: 5m}}
  sent: {source: {injection: {}}, timestamp: ts}
  people: {source: {injection: {}}, timestamp: ts, table: {key: [a, b], delete: gone}}
  places: {source: {files: {path: c, format: csv}}, table: a}
  slim: {fields: {path: str, kb: float}}
computations:
  slim:
    input: {hits: {key: [path, size]}}
    map: {path: path, kb: size / 1000}
    output: slim
    shards: 4
  wide:
    input: {slim: {}}
    filter: "kb > 2"
    output: wide
  sort:
    input: {wide: {}}
    branch: {big: kb > 9, rest: otherwise}
    match: all
    shards: 2
    standby: 1
  once:
    input: {big: {key: path}}
    deduplicate: {within: 10m, by: [path, kb]}
    output: once
  best:
    input: {rest: {key: path}}
    top: {by: [kb desc, path], k: 3, rank: place}
    output: best
  newest:
    input: {rest: {key: path}}
    deduplicate: {keep: last}
    output: newest
  usual:
    input: {big: {key: path}}
    over: {rows: 10, ttl: 7d}
    aggregate: {mean: {mean: kb}}
    where: kb > 0
    output: usual
  recent:
    input: {big: {key: path}}
    over: {range: 10m}
    aggregate: {n: count}
    output: recent
  both:
    input: {big: {key: path}, rest: {key: path}}
    window: {session: 5m}
    join: outer
    output: both
  again:
    input: {big: {key: path}, rest: {key: path}}
    window: {tumbling: 5m}
    join: left
    trigger: {repeat: {after_count: 3}}
    allowed_lateness: 1h
    late: side:behind
    output: again
  lone:
    input: {big: {key: path}, rest: {key: path}}
    join: {kind: anti, ttl: {big: 7d}}
    output: lone
  near:
    input: {big: {key: path}, rest: {key: path}}
    join: {kind: left, within: {before: 10s, until: big.until}}
    output: near
  all:
    input: {big: {key: path}, rest: {key: path}, once: {key: path}}
    join: left
    output: all
  rounds:
    input: {big: {key: path}, rest: {key: path}, once: {key: path}}
    window: {tumbling: 5m}
    join: outer
    output: rounds
  priced:
    input: {big: {key: path}, once: {key: path}}
    enrich: {with: once, as: price, missing: drop, as_of: arrival}
    output: priced
  words:
    input: {wide: {key: "codes:key"}, made: {key: key}}
    flat_map: codes:split
    output: words
  minutes:
    input: {words: {key: word}}
    window: {sliding: 1h, every: 1m, offset: 10s, emit: changes}
    aggregate:
      n: count
      clicks: {count: {where: "a == 1"}}
      p: {quantile: size, q: 0.9, accuracy: 0.05}
      o: {"codes:Own": size, k: 3}
    where: size > 0
    allowed_lateness: 1h
    late: side:late_words
    accumulation: accumulating
    output: minutes
  days:
    input: {words: {key: word}}
    window: {cumulative: 1d, every: 1m, time_zone: Europe/Paris}
    output: days
  bursts:
    input: {sent: {}}
    window: {session: 30m}
    aggregate: {n: count}
    trigger:
      after_watermark:
        early: {repeat: {any: [{after_count: 3}, {after_processing_time: {delay: 1m, align: 1m}}]}}
        late: default
    accumulation: accumulating
    output_time: latest
    late: drop
    output: bursts
  runs:
    input: {sent: {}}
    window: {count: 10}
    aggregate: {n: count}
    output: runs
  silences:
    input: {sent: {}}
    window: {tumbling: 1h, emit: empty}
    aggregate: {n: count}
    output: silences
  numbers:
    input: {slim: {}}
    dictionary: {of: path, as: number, partitions: 64, ttl: 30d}
    output: numbers
    shards: 2
  visitors:
    input: {numbers: {key: [kb]}}
    uv: {of: path, every: 1m, per: 1d, time_zone: Europe/Paris, as: paths, emit: changes,
      partitions: 32, ttl: 2d}
    where: kb > 1
    output: visitors
  about:
    input: {numbers: {key: kb}}
    uv: {of: path, every: 1h, approximate: true}
    output: about
  until:
    input: {sent: {}}
    window: {tumbling: 1h}
    aggregate: {n: count}
    trigger: {or_finally: {main: {each: [{after_bytes: 10}, never]},
      until: {once: after_watermark}}}
    output: until
  ever:
    input: {sent: {}}
    window: global
    aggregate: {n: count}
    trigger: {all: [{after_count: 3}, {after_percentile_watermark: 0.9},
      {after_processing_time: 5s}]}
    output: ever
  living:
    input: {people: {key: a}}
    aggregate: {n: count}
    output: living
  placed:
    input: {sent: {key: a}, places: {key: a}}
    enrich: {with: places, broadcast: {limit: 2MB}}
    output: placed
  known:
    input: {sent: {key: [a, b]}, people: {key: [a, b]}}
    enrich: {with: people, broadcast: {copies: 3}}
    output: known
  watch:
    input: {bursts: {}, late_words: {key: word}}
    callback: codes:Watch
    options: {limit: 3, names: [a, b], more: {x: null, y: true}}
    output: [alerts, trace]
    delivery: at_least_once
    productions: weak
    max_attempts: 5
    on_error: {stop_above: 20%, of_at_least: 50}
sinks:
  minutes: {files: {path: "${output}/minutes", format: parquet, flush: 10s, fields: {n: int}}}
  alerts: {stdout: {with_key: true, at_once: true}}
  dead_letters: {files: {path: letters}}
"""
PYTHON = """\
from datetime import timedelta

from codes import Hit, Own, Watch, key, make, split, when
from millwheel import *

p = Pipeline("everything")
hits = p.read(
    "hits",
    FileSource(["a/*.csv", "b"], "csv", delimiter=";", columns=["id", "t", "path"], follow=True),
    timestamp=when, timestamp_unit="ms", id="id",
    max_delay=timedelta(seconds=90), idle_after="never", max_future="2d", schema=Hit,
      fields={"size": int},
)
made = p.read("made", GeneratorSource(rate=5, count=10, factory=make), id="id", id_horizon="5m")
sent = p.read("sent", InjectionSource(), timestamp="ts")
people = p.read("people", InjectionSource(), timestamp="ts",
  table={"key": ["a", "b"], "delete": "gone"})
places = p.read("places", FileSource("c", "csv"), table="a")
p.stream("slim", fields={"path": str, "kb": "float"})
slim = hits.key_by("path", "size").map({"path": "path", "kb": "size / 1000"}, output="slim",
  shards=4)
wide = slim.filter("kb > 2", output="wide")
big, rest = wide.branch({"big": "kb > 9", "rest": "otherwise"}, match="all", name="sort",
  shards=2, standby=1)
once = big.key_by("path").deduplicate("path", "kb", within="10m", name="once")
best = rest.key_by("path").top("kb desc", "path", k=3, rank="place", name="best")
newest = rest.key_by("path").deduplicate(keep="last", name="newest")
usual = big.key_by("path").over({"mean": agg.mean("kb")}, rows=10, ttl="7d", where="kb > 0",
  name="usual")
recent = big.key_by("path").over({"n": "count"}, range="10m", name="recent")
both = big.key_by("path").join(rest.key_by("path"), Sessions("5m"), how="outer", name="both")
again = big.key_by("path").join(rest.key_by("path"), Tumbling("5m"), how="left",
  trigger=Repeat(AfterCount(3)), allowed_lateness="1h", late="side:behind", name="again")
lone = big.key_by("path").join(rest.key_by("path"), how="anti", ttl={"big": "7d"}, name="lone")
near = big.key_by("path").join(
    rest.key_by("path"), how="left", within={"before": "10s", "until": "big.until"}, name="near"
)
big.key_by("path").join([rest.key_by("path"), once.key_by("path")], how="left", name="all")
big.key_by("path").join(
    [rest.key_by("path"), once.key_by("path")], Tumbling("5m"), how="outer", name="rounds"
)
priced = big.key_by("path").enrich(once.key_by("path"), field="price", missing="drop",
  as_of="arrival", name="priced")
words = wide.key_by(key).flatten(made.key_by("key")).flat_map(split, name="words")
minutes = (
    words.key_by("word")
    .window(Sliding("1h", every="1m", offset="10s", changes=True), allowed_lateness="1h",
      late="side:late_words",
            accumulation="accumulating")
    .aggregate(
        {"n": agg.count(), "clicks": agg.count(where="a == 1"), "p": agg.quantile("size", 0.9,
          accuracy=0.05),
         "o": agg.own(Own, "size", options={"k": 3})},
        where="size > 0", name="minutes")
)
words.key_by("word").window(Cumulative("1d", "1m",
  time_zone="Europe/Paris")).aggregate(output="days")
bursts = (
    sent.window(Sessions("30m"), output_time="latest")
    .trigger(
        AfterWatermark(Repeat(AfterAny(AfterCount(3), AfterProcessingTime("1m", align="1m"))),
          Default()),
        accumulation="accumulating")
    .aggregate({"n": "count"}, output="bursts")
)
sent.window(Count(10)).aggregate({"n": agg.count()}, output="runs")
sent.window(Tumbling("1h", empty=True)).aggregate({"n": agg.count()}, output="silences")
numbers = slim.dictionary("path", "number", partitions=64, ttl="30d", output="numbers", shards=2)
numbers.key_by("kb").unique_visitors(
    "path", every="1m", time_zone="Europe/Paris", field="paths", changes=True, partitions=32,
      ttl="2d",
    where="kb > 1", output="visitors")
numbers.key_by("kb").unique_visitors("path", every="1h", approximate=True, output="about")
(sent.window(Tumbling("1h"))
    .trigger(OrFinally(AfterEach(AfterBytes(10), Never()), Once(AfterWatermark())))
    .aggregate({"n": agg.count()}, output="until"))
(sent.window(Global())
    .trigger(AfterAll(AfterCount(3), AfterPercentileWatermark(0.9), AfterProcessingTime("5s")))
    .aggregate({"n": agg.count()}, output="ever"))
people.key_by("a").aggregate({"n": "count"}, output="living")
sent.key_by("a").enrich(places.key_by("a"), broadcast={"limit": "2MB"}, name="placed")
sent.key_by("a", "b").enrich(people.key_by("a", "b"), broadcast={"copies": 3}, name="known")
alerts, trace = p.flatten(bursts, p.stream("late_words").key_by("word")).process(
    Watch, name="watch", output=["alerts", "trace"],
    options={"limit": 3, "names": ["a", "b"], "more": {"x": None, "y": True}},
    delivery="at_least_once", productions="weak", max_attempts=5,
    on_error={"stop_above": "20%", "of_at_least": 50})
minutes.write(FileSink("${output}/minutes", "parquet", flush="10s", fields={"n": "int"}))
alerts.write(StdoutSink(with_key=True, at_once=True))
p.dead_letters.write(FileSink("letters"))
"""
CODE = """\
import msgspec
from millwheel import Aggregator, Computation

class Hit(msgspec.Struct):
    id: str
    path: str = ""
    size: int = 0

class Own(Aggregator):
    def __init__(self, k): self.k = k
    def create(self): return 0

class Watch(Computation):
    def __init__(self, limit, names, more): pass
    def process_record(self, ctx, record): pass

def when(value): return 0
def key(value): return value["path"]
def make(index, partition): return {"ts": index}
def split(value): return []
"""


def without_lines(spec: PipelineSpec) -> PipelineSpec:
    """The same pipeline, wherever it was written."""
    return replace(
        spec,
        streams=tuple(replace(stream, where="") for stream in spec.streams),
        computations=tuple(replace(computation, where="") for computation in spec.computations),
        sinks=tuple(replace(sink, where="") for sink in spec.sinks),
        file="",
    )


@pytest.mark.parametrize("example", ["weblog", "zeitgeist", "ads"])
def test_each_example_is_the_same_in_both_forms(example: str) -> None:
    yaml, python = (
        load_pipeline(EXAMPLES / example / f"pipeline.{end}", PARAMS) for end in ("yaml", "py")
    )
    assert without_lines(yaml) == without_lines(python)


def test_all_that_can_be_said_in_one_form_can_be_said_in_the_other(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(YAML)
    (tmp_path / "p.py").write_text(PYTHON)
    (tmp_path / "codes.py").write_text(CODE)
    yaml, python = (load_pipeline(tmp_path / f"p.{end}", PARAMS) for end in ("yaml", "py"))
    assert without_lines(yaml) == without_lines(python)
