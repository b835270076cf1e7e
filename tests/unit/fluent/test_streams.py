"""Streams of a pipeline in Python."""

from __future__ import annotations

from typing import Any

from millwheel import (
    InjectionSource,
)
from tests.unit.fluent.test_draft import small


def test_computations_with_the_same_output_get_names_of_their_own(check: Any) -> None:
    spec = check("hits.map('x', output='all')\nhits.filter('y', output='all')\nhits.filter('z')\nhits.filter('w')\n")
    assert [each.name for each in spec.computations] == ["all", "all_2", "hits_filter", "hits_filter_2"]
    assert [each.outputs for each in spec.computations] == [("all",), ("all",), ("hits_filter",), ("hits_filter_2",)]


def test_steps_of_a_flattened_stream_read_all_of_them() -> None:
    pipeline, hits = small()
    clicks = pipeline.read("clicks", InjectionSource(), timestamp="ts")
    hits.flatten(clicks).key_by("user").filter("x > 1", name="both")
    hits.key_by("a").flatten(clicks.key_by("b"), pipeline.dead_letters).map("x", name="own")
    pipeline.flatten(hits, clicks.key_by("b")).map("x", name="mixed")
    both, own, mixed = ({g.stream: g.key.names for g in each.inputs} for each in pipeline.spec().computations)
    assert both == {"hits": ("user",), "clicks": ("user",)}
    assert own == {"hits": ("a",), "clicks": ("b",), "dead_letters": ()}
    assert mixed == {"hits": (), "clicks": ("b",)}
