"""`millwheel explain`: what the tree and the picture of a pipeline say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from millwheel.cli.app import app
from millwheel.explain.picture import Arrow, BoxKind, Picture, picture_of
from millwheel.explain.svg import svg_of
from millwheel.explain.tree import tree_of
from millwheel.spec import load_pipeline

REPO = Path(__file__).parents[3]
EXAMPLES = ("weblog", "zeitgeist", "ads")
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
  good: {input: clicks, filter: "value > 3", map: {user: key, n: value}, output: good, shards: 8, standby: 1}
  match: {input: {orders: {key: order}, payments: {key: [a, b]}}, callback: "codes:Match", output: [paid, unpaid]}
  sessions:
    input: {good: {key: user}, paid: {key: user}}
    window: {session: 30m}
    where: n > 0
    aggregate: {n: {sum: n}, p99: {quantile: n, q: 0.99, where: "n > 5"}}
    trigger: {after_watermark: {early: {repeat: {any: [{after_count: 3}, {after_processing_time: 1m}]}}}}
    accumulation: retracting
    allowed_lateness: 1h
    late: side:late_clicks
    output_time: earliest
    output: sessions
  retry: {input: [unpaid, again], callback: "codes:Retry", output: again, productions: weak, delivery: at_least_once}
  minutes: {input: sessions, window: {tumbling: 1m, offset: 10s}, output: minutes}
  batches: {input: {good: {key: user}}, window: {tumbling: 1m}, callback: "codes:Batch", options: {least: 2}}
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


@pytest.fixture
def shop(tmp_path: Path) -> Picture:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "codes.py").write_text(CODES)
    return picture_of(load_pipeline(tmp_path / "shop.yaml"))


def tree_text(picture: Picture) -> str:
    console = Console(width=120, no_color=True)
    with console.capture() as capture:
        console.print(tree_of(picture))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def example(name: str, form: str = "yaml") -> Picture:
    path = REPO / "examples" / name / f"pipeline.{form}"
    return picture_of(load_pipeline(path, {"input": "${input}", "output": "${output}"} if name == "ads" else {}, {}))


# --- what it says ----------------------------------------------------------------------------------------


def test_boxes_say_what_they_do(shop: Picture) -> None:
    assert shop.box("source.orders").lines == (
        "files jsonl as they grow: orders",
        "timestamp ts",
        "id n, copies within 1h",
        "watermark 1m behind the newest",
    )
    assert shop.box("source.payments").lines[-1] == "watermark 30s behind the newest, never idle"
    assert shop.box("source.clicks").lines[-1] == "watermark in order"
    assert shop.box("good").lines == ("filter value > 3", "map {user: key, n: value}")
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
    )
    assert shop.box("minutes").lines == ("tumbling 1m, offset 10s", "result = the records", "fires 1m after its end")
    assert shop.box("batches").lines == ("tumbling 1m", "codes:Batch(least=2)", "fires at its end")
    assert shop.box("sink.minutes").lines == ("files parquet: out/minutes",)
    assert shop.box("good").where == "shop.yaml:11"


def test_arrows_are_streams_with_their_keys(shop: Picture) -> None:
    arrows = set(shop.arrows)
    assert Arrow("source.payments", "match", "payments", "by a, b") in arrows
    assert Arrow("match", "retry", "unpaid") in arrows
    assert Arrow("retry", "retry", "again") in arrows
    assert Arrow("sessions", "sink.late_clicks", "late_clicks") in arrows
    assert Arrow("dead_letters", "watch", "dead_letters") in arrows
    assert shop.box("dead_letters").kind is BoxKind.DEAD_LETTERS


def test_the_tree_names_every_box_once_and_refers_to_it_elsewhere(shop: Picture) -> None:
    text = tree_text(shop)
    assert text.count("n = sum(n)") == 1
    assert len(re.findall(r"→ sessions +window  \(above\)", text)) == 1
    assert "again → retry  callback  (above)" in text
    assert {line.split()[1] for line in text.splitlines() if line[:1] in "├└"} >= {
        "orders",
        "payments",
        "clicks",
        "all",
    }


def test_both_forms_of_an_example_are_drawn_alike() -> None:
    for name in EXAMPLES:
        assert tree_text(example(name)) == tree_text(example(name, "py"))
        assert re.sub(r"\.(yaml|py):\d+", "", svg_of(example(name))) == re.sub(
            r"\.(yaml|py):\d+", "", svg_of(example(name, "py"))
        )


def test_code_without_a_name_is_said_to_be_ones_own(tmp_path: Path) -> None:
    text = "from millwheel import *\np = Pipeline('p')\nhits = p.read('hits', InjectionSource(), timestamp='t')\n"
    text += "hits.key_by(lambda v: v['a']).map(lambda v: v, name='same')\n"
    (tmp_path / "own.py").write_text(text)
    picture = picture_of(load_pipeline(tmp_path / "own.py"))
    assert picture.box("same").lines == ("map (own code)",)
    assert picture.arrows == (Arrow("source.hits", "same", "hits", "by (own code)"),)


# --- the SVG ---------------------------------------------------------------------------------------------


def test_the_picture_is_xml_that_says_what_the_tree_says(shop: Picture) -> None:
    root = ET.fromstring(svg_of(shop))
    texts = " ".join(
        " ".join("".join(each.itertext()).split()) for each in root.iter("{http://www.w3.org/2000/svg}text")
    )
    for box in shop.boxes:
        assert box.title in texts
        for word in " ".join(box.lines).split():
            assert word in texts
    assert {arrow.stream for arrow in shop.arrows} <= set(texts.split())


def test_every_text_has_room_in_its_box(shop: Picture) -> None:
    root = ET.fromstring(svg_of(shop))
    right = float(root.attrib["width"])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if text.attrib.get("text-anchor") is None:
            size = float(text.attrib.get("font-size", 12))
            assert float(text.attrib["x"]) + len("".join(text.itertext())) * size * 0.6 <= right


def test_names_that_are_markup_stay_text(tmp_path: Path) -> None:
    text = "pipeline: p\nstreams: {a: {source: injection, timestamp: t}}\n"
    text += "computations: {c: {input: a, filter: \"x < '<b>&amp;'\", output: d}}\n"
    (tmp_path / "p.yaml").write_text(text)
    svg = svg_of(picture_of(load_pipeline(tmp_path / "p.yaml")))
    assert "<b>" not in svg
    assert "filter x < '<b>&amp;'" in [each.text for each in ET.fromstring(svg).iter()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_pictures_of_the_examples_are_current(name: str) -> None:
    command = f"millwheel explain examples/{name}/pipeline.yaml --svg docs/pictures/{name}.svg"
    drawn = (REPO / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == svg_of(example(name)), f"run: {command}"


def test_the_tree_of_the_page_is_current() -> None:
    page = (REPO / "docs" / "explain.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    assert shown == tree_text(example("weblog"))


# --- the command -----------------------------------------------------------------------------------------


def explain(*words: str) -> Any:
    return CliRunner().invoke(app, ["explain", *words])


def test_the_command_prints_the_tree_and_draws_the_picture(tmp_path: Path) -> None:
    pipeline = str(REPO / "examples" / "ads" / "pipeline.py")
    done = explain(pipeline, "--set", "output=/there", "--svg", str(tmp_path / "ads.svg"))
    assert done.exit_code == 0
    assert "files jsonl: ${input}" in done.output
    assert "files jsonl: /there/ctr" in done.output
    assert "/there/over_budget" in (tmp_path / "ads.svg").read_text()


def test_a_wrong_pipeline_is_told_instead_of_drawn(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("pipeline: p\nstreams: {a: {source: injection}}\n")
    done = explain(str(tmp_path / "p.yaml"), "--svg", str(tmp_path / "p.svg"))
    assert "streams.a.timestamp: is missing" in str(done.exception)
    assert not (tmp_path / "p.svg").exists()


def test_a_picture_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    done = explain(str(REPO / "examples" / "ads" / "pipeline.yaml"), "--svg", str(tmp_path / "no" / "p.svg"))
    assert "cannot be written: No such file or directory; name a file in a folder that exists" in str(done.exception)
