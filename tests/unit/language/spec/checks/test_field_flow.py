from __future__ import annotations

from typing import Any

import msgspec

from millwheel import Computation, InjectionSource, Pipeline, Tumbling, agg
from millwheel.language.spec.checks.field_flow import exact_fields, fields_of_classes


class Anything(Computation):
    def process_record(self, ctx: Any, record: Any) -> None:
        ctx.produce("own", {"what": "ever"})


def pipeline() -> Pipeline:
    p = Pipeline("p")
    clicks = p.read("clicks", InjectionSource(), timestamp="at")
    free = p.read("free", InjectionSource(), timestamp="at")
    clicks.filter("n > 1").map({"who": "user", "n": "n"}, output="mapped").deduplicate(
        within="1m", output="once"
    )
    clicks.map(lambda value: value, output="unknown")
    clicks.key_by("user").process(Anything, output="own")
    clicks.key_by("user", "page").window(Tumbling("1m")).aggregate(
        {"n": agg.count()}, output="sums"
    )
    clicks.key_by(lambda value: "x").window(Tumbling("1m"), late="side:late").aggregate(
        output="lists"
    )
    free.map({"other": "x"}, output="sums", name="into_sums")
    free.filter("x", output="still_free")
    clicks.key_by("user").enrich(free.key_by("user"), field="info", output="rich")
    return p


def test_fields_are_known_as_far_as_computations_declare_them() -> None:
    known = exact_fields(pipeline().spec(), {"clicks": ["at", "user", "page", "n"]})
    assert known == {
        "clicks": ("at", "user", "page", "n"),
        "mapped": ("who", "n"),
        "once": ("who", "n"),
        "sums": ("user", "page", "window_start", "window_end", "n", "other"),
        "lists": ("key", "window_start", "window_end", "result"),
        "late": ("at", "user", "page", "n"),
        "rich": ("at", "user", "page", "n", "info"),
    }


def test_a_stream_with_one_unknown_producer_is_unknown() -> None:
    p = Pipeline("p")
    clicks = p.read("clicks", InjectionSource(), timestamp="at")
    clicks.map({"a": "a"}, output="both")
    clicks.map(lambda value: value, output="both", name="other")
    assert exact_fields(p.spec(), {}) == {}


class Click(msgspec.Struct):
    at: int
    user: str


def test_classes_of_streams_name_their_fields() -> None:
    p = Pipeline("p")
    p.read("clicks", InjectionSource(), timestamp="at", schema=Click).filter(
        "at > 1", output="late"
    )
    p.read("free", InjectionSource(), timestamp="at")
    assert fields_of_classes(p.spec()) == {"clicks": ["at", "user"]}
