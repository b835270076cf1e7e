"""`millwheel explain`: what the tree and the picture of a pipeline say."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console

from millwheel import FileSink, InjectionSource, Pipeline
from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.mermaid import mermaid_of
from millwheel.tools.explain.picture import Arrow, Box, BoxKind, Picture, picture_of
from millwheel.tools.explain.svg import svg_of
from millwheel.tools.explain.tree import tree_of
from tests.search.script import load

REPO = Path(__file__).parents[4]
EXAMPLES = ("weblog", "zeitgeist", "ads")
AGAIN = """\
pipeline: again
streams:
  orders: {source: {injection: {}}, timestamp: ts}
  prices: {source: {injection: {}}, timestamp: ts}
computations:
  soon:
    input: {orders: {key: item}, prices: {key: item}}
    window: {tumbling: 1m}
    join: inner
    allowed_lateness: 1h
    output: soon
sinks: {soon: {stdout: {}}}
"""
SHOP = """\
pipeline: shop
streams:
  orders:
    source: {files: {path: orders, format: jsonl, follow: true}}
    timestamp: ts
    id: n
    watermark: {max_delay: 1m}
  payments: {source: {injection: {}}, timestamp: ts, watermark: {max_delay: 30s, idle_after: never}}
  clicks: {source: {generator: {rate: 500, keys: 100}}}
computations:
  good: {input: clicks, filter: "value > 3", map: {user: key, n: value}, output: good, shards: 8,
    standby: 1}
  match: {input: {orders: {key: order}, payments: {key: [a, b]}}, callback: "codes:Match",
    output: [paid, unpaid]}
  sessions:
    input: {good: {key: user}, paid: {key: user}}
    window: {session: 30m}
    where: n > 0
    aggregate: {n: {sum: n}, p99: {quantile: n, q: 0.99, where: "n > 5"}}
    trigger: {after_watermark: {early: {repeat: {any: [{after_count: 3},
      {after_processing_time: 1m}]}}}}
    accumulation: retracting
    allowed_lateness: 1h
    late: side:late_clicks
    output_time: earliest
    output: sessions
  retry: {input: [unpaid, again], callback: "codes:Retry", output: again, productions: weak,
    delivery: at_least_once}
  minutes: {input: sessions, window: {tumbling: 1m, offset: 10s}, output: minutes}
  batches: {input: {good: {key: user}}, window: {tumbling: 1m}, callback: "codes:Batch",
    options: {least: 2}}
  watch: {input: dead_letters, callback: "codes:Match"}
sinks:
  late_clicks: {stdout: {}}
  minutes: {files: {path: out/minutes, format: parquet}}
"""
CODES = """\
from millwheel import Computation
class Match(Computation):
    def process_record(self, ctx, record): pass
class Batch(Computation):
    def __init__(self, least): pass
    def process_window(self, ctx, key, window, records): pass
class Retry(Match):
    def process_timer(self, ctx, timer): pass
"""


def tree_text(picture: Picture) -> str:
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(tree_of(picture))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def example(name: str, form: str = "yaml") -> Picture:
    path = REPO / "examples" / name / f"pipeline.{form}"
    return picture_of(
        load_pipeline(
            path, {"input": "${input}", "output": "${output}"} if name == "ads" else {}, {}
        )
    )


# --- what it says ---------------------------------------------------------------------------------


RELATIONS = """\
pipeline: relations
streams:
  orders: {source: {injection: {}}, timestamp: ts}
  prices: {source: {injection: {}}, timestamp: ts}
computations:
  near: {input: {orders: {key: a}, prices: {key: a}}, join: {kind: left, within: {after: 1h}},
    output: near}
  pairs: {input: {orders: {key: a}, prices: {key: a}}, join: inner, output: pairs}
  best: {input: {orders: {key: a}}, top: {by: [ts], k: 2}, output: best}
  looked: {input: {orders: {key: a}}, over: {rows: 2}, aggregate: {n: count}, output: looked}
  counts: {input: {orders: {key: a}}, aggregate: {n: count}, output: counts}
  big: {input: orders, filter: ts > 1, output: big}
sinks: {near: {stdout: {}}, pairs: {stdout: {mode: changelog}}, best: {stdout: {mode: changelog}},
  looked: {stdout: {}}, counts: {stdout: {mode: changelog}}, big: {stdout: {}}}
"""


def test_a_box_says_what_kind_of_computation_it_is() -> None:
    picture = picture_of(load(RELATIONS))
    kinds = {box.name: box.kind.value for box in picture.boxes}
    assert {name: kinds[name] for name in ("near", "pairs", "best", "looked", "counts", "big")} == {
        "near": "join",
        "pairs": "join",
        "best": "rows in order",
        "looked": "rows in order",
        "counts": "change log",
        "big": "steps",
    }


def test_a_join_that_fires_again_says_what_it_emits() -> None:
    lines = picture_of(load(AGAIN)).box("soon").lines
    assert lines[:4] == (
        "tumbling 1m",
        "inner join of orders and prices",
        "fires at its end",
        "emits what has changed since it fired before",
    )


def test_boxes_say_what_they_do(shop: Picture) -> None:
    assert shop.box("source.orders").lines == (
        "files jsonl as they grow: orders",
        "timestamp ts",
        "id n, copies within 1h",
        "watermark 1m behind the newest",
        "read record by record: match takes each record",
    )
    assert shop.box("source.payments").lines[-2] == "watermark 30s behind the newest, never idle"
    assert shop.box("source.clicks").lines[-2] == "watermark in order"
    assert shop.box("good").lines == (
        "filter value > 3",
        "map {user: key, n: value}",
        "taken in columns",
        "not chained: it has shards of its own",
        "no local combine for sessions: it has several inputs",
    )
    assert shop.box("good").note == "exactly once, strong · 8 shards, 1 standby"
    assert shop.box("retry").note == "at least once, weak · 2 shards per worker"
    assert shop.box("sessions").lines == (
        "sessions, gap 30m",
        "where n > 0",
        "n = sum(n)",
        "p99 = quantile(n, q=0.99) where n > 5",
        "fires after watermark (early: repeat any (after count 3, after processing time 1m))",
        "retracting",
        "late records taken for 1h, then to late_clicks",
        "output time earliest",
        "taken record by record: it has several inputs",
    )
    assert shop.box("minutes").lines == (
        "tumbling 1m, offset 10s",
        "result = the records",
        "fires 1m after its end",
        "taken record by record: its key is not a field",
    )
    assert shop.box("batches").lines == (
        "tumbling 1m",
        "codes:Batch(least=2)",
        "fires at its end",
        "taken record by record: code of your own takes each record",
    )
    assert shop.box("sink.minutes").lines == (
        "files parquet: out/minutes",
        "comes record by record",
    )
    assert shop.box("good").where == "shop.yaml:11"


def test_a_timestamp_has_its_unit() -> None:
    pipeline = Pipeline("units")
    hits = pipeline.read("hits", InjectionSource(), timestamp="at", timestamp_unit="ms")
    hits.write(FileSink("out"))
    assert picture_of(pipeline.spec()).box("source.hits").lines[1] == "timestamp at in ms"


def test_arrows_are_streams_with_their_keys(shop: Picture) -> None:
    arrows = set(shop.arrows)
    assert Arrow("source.payments", "match", "payments", "by a, b") in arrows
    assert Arrow("match", "retry", "unpaid") in arrows
    assert Arrow("retry", "retry", "again") in arrows
    assert Arrow("sessions", "sink.late_clicks", "late_clicks") in arrows
    assert Arrow("dead_letters", "watch", "dead_letters") in arrows
    assert shop.box("dead_letters").kind is BoxKind.DEAD_LETTERS


def test_both_forms_of_an_example_are_drawn_alike() -> None:
    for name in EXAMPLES:
        assert tree_text(example(name)) == tree_text(example(name, "py"))
        assert re.sub(r"\.(yaml|py):\d+", "", svg_of(example(name))) == re.sub(
            r"\.(yaml|py):\d+", "", svg_of(example(name, "py"))
        )


# --- the SVG --------------------------------------------------------------------------------------


# --- the command ----------------------------------------------------------------------------------


def test_an_enrichment_is_labelled_and_a_sink_says_what_becomes_of_rows_that_change() -> None:
    p = Pipeline("p")
    visits, users = (
        p.read(name, InjectionSource(), timestamp="at", id="id") for name in ("visits", "users")
    )
    rich = visits.key_by("user").enrich(users.key_by("user"), field="info", output="rich")
    rich.write(FileSink("out", mode="upsert", by=["user", "page"]))
    visits.write(FileSink("all"))
    boxes = {box.name: box for box in picture_of(p.spec()).boxes}
    assert boxes["rich"].kind.value == "enrich"
    assert boxes["sink.rich"].lines[0].endswith("out, upsert by user, page")
    assert boxes["sink.visits"].lines[0].endswith("all")


def test_a_callback_whose_keys_several_partitions_may_feed_is_marked_with_the_cure() -> None:
    def lines(path: str, order: str = "") -> tuple[str, ...]:
        text = (
            f"pipeline: p\nstreams:\n  hits: {{source: {{files: {{path: {path}, format: jsonl}}}},"
            " timestamp: at}\ncomputations:\n  c: {input: {hits: {key: k}}, callback:"
            f" callbacks:Orders, {order}options: {{out: c}}, output: c}}\n"
        )
        return picture_of(load(text)).box("c").lines

    mark = (
        "in the order of arrival: hits may have several files; order_by: timestamp makes it that of"
        " the input"
    )
    assert mark in lines("'*.jsonl'")
    assert not [line for line in lines("in.jsonl") if "arrival" in line]
    assert not [line for line in lines("'*.jsonl'", "order_by: timestamp, ") if "arrival" in line]


def test_a_table_tells_what_its_rows_are_and_what_waits_for_them() -> None:
    picture = picture_of(
        load(
            "pipeline: p\nstreams:\n"
            "  users: {source: {injection: {}}, timestamp: at, table: {key: id, delete: gone}}\n"
            "  sides: {source: {files: {path: s.jsonl, format: jsonl}}, table: id}\n"
            "computations:\n  e: {input: {users: {key: id}, sides: {key: id}},"
            " enrich: {with: sides}, output: e}\n"
            "sinks: {e: {stdout: {mode: changelog}}}\n"
        )
    )
    assert picture.box("table.users").lines[:2] == (
        "the row of each key: the last record by time, then by its place in the source",
        "none where gone",
    )
    source = picture.box("source.events.sides").lines
    assert "rows without times; consumers that need them wait for the last" in source
    assert "sides from sides once all of it is there; without: null" in picture.box("e").lines


BROADCAST = """pipeline: p
streams:
  hits: {source: {files: {path: h.jsonl, format: jsonl}}, timestamp: at}
  sides: {source: {files: {path: s.jsonl, format: jsonl}}%s, table: id}
computations:
  e: {input: {hits: {key: id}, sides: {key: id}}, enrich: {with: sides, broadcast: %s}, output: e}
sinks: {e: {stdout: {}}}
"""


def test_copies_of_a_table_say_so() -> None:
    picture = picture_of(load(BROADCAST % (", timestamp: at", "{copies: 3}")))
    assert "each change of sides, to each of 3 copies" in picture.box("copies.e").lines
    copied = "sides from sides as of its time, in 3 whole copies; without: null"
    assert copied in picture.box("e").lines


def test_a_table_that_is_held_whole_says_so() -> None:
    picture = picture_of(load(BROADCAST % ("", "true")))
    held = "sides from sides once all of it is there, held whole by each worker; without: null"
    assert held in picture.box("e").lines


# mermaid.py: The picture of a pipeline as Mermaid text.


def test_every_box_and_every_arrow_is_a_line(shop: Picture) -> None:
    lines = mermaid_of(shop).splitlines()
    assert lines[0] == "flowchart TB"
    assert len(lines) == 1 + len(shop.boxes) + len(shop.arrows)
    assert len([line for line in lines if "-->" in line]) == len(shop.arrows)


def test_words_cannot_break_out_of_their_box() -> None:
    boxes = (Box("a", BoxKind.SOURCE, 'x"]<b>', ("1 > 0",)), Box("b", BoxKind.SINK, "out"))
    text = mermaid_of(Picture("p", boxes, (Arrow("a", "b", "s", 'f("k")'),)))
    assert '    n0(["<b>x&quot;]&lt;b&gt;</b><br>1 &gt; 0"])' in text
    assert '    n0 -->|"s<br>by f(&quot;k&quot;)"| n1' in text
    assert re.findall(r'\[\("<b>out</b>"\)\]', text)
