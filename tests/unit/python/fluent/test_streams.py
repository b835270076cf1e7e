"""Streams of a pipeline in Python."""

from __future__ import annotations

from typing import Any

from millwheel import (
    InjectionSource,
)
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from tests.unit.python.fluent.test_draft import small


def test_computations_with_the_same_output_get_names_of_their_own(check: Any) -> None:
    spec = check(
        "hits.map('x', output='all')\nhits.filter('y',"
        " output='all')\nhits.filter('z')\nhits.filter('w')\n"
    )
    assert [each.name for each in spec.computations] == [
        "all",
        "all_2",
        "hits_filter",
        "hits_filter_2",
    ]
    assert [each.outputs for each in spec.computations] == [
        ("all",),
        ("all",),
        ("hits_filter",),
        ("hits_filter_2",),
    ]


def test_steps_of_a_flattened_stream_read_all_of_them() -> None:
    pipeline, hits = small()
    clicks = pipeline.read("clicks", InjectionSource(), timestamp="ts")
    hits.flatten(clicks).key_by("user").filter("x > 1", name="both")
    hits.key_by("a").flatten(clicks.key_by("b"), pipeline.dead_letters).map("x", name="own")
    pipeline.flatten(hits, clicks.key_by("b")).map("x", name="mixed")
    both, own, mixed = (
        {g.stream: g.key.names for g in each.inputs} for each in pipeline.spec().computations
    )
    assert both == {"hits": ("user",), "clicks": ("user",)}
    assert own == {"hits": ("a",), "clicks": ("b",), "dead_letters": ()}
    assert mixed == {"hits": (), "clicks": ("b",)}


def test_a_lookup_is_what_yaml_has_as_one(check: Any) -> None:
    redis = '{"redis": {"url": "redis://h", "key": "item:{item}"}}'
    spec = check(
        f"hits.key_by('user').look_up({redis}, field='info', missing='drop', name='one')\n"
        f"hits.key_by('user').look_up({redis}, fields={{'cents': 'price'}}, by=['item'], "
        "cache={'size': 5, 'ttl': '1m'}, batch=7, output='two')\n"
        f"hits.key_by('user').look_up({redis}, field='info')\n"
    )
    one, two, three = spec.computations
    assert (one.name, two.outputs, three.name) == ("one", ("two",), "hits_lookup")
    first, second = one.work, two.work
    assert (first.kind, first.options, first.name, first.missing.value) == (
        "redis",
        {"url": "redis://h", "key": "item:{item}"},
        "info",
        "drop",
    )
    assert (second.fields, second.by, second.cache_size, second.cache_ttl_us, second.batch) == (
        {"cents": "price"},
        ("item",),
        5,
        60_000_000,
        7,
    )
    assert (three.work.missing.value, three.work.cache_size) == ("keep", 0)


def test_keys_are_fields_expressions_or_everything(check: Any) -> None:
    found = [
        check(f"hits.key_by({written}).map('x', name='c')\n").computations[0].inputs[0].key
        for written in (
            "'user'",
            "'user', 'page'",
            "day='n // 2'",
            "'user', day='n // 2'",
            "'all'",
            "'user', null_key='group'",
        )
    ]
    assert found == [
        KeySpec(KeyKind.FIELD, ("user",)),
        KeySpec(KeyKind.FIELDS, ("user", "page")),
        KeySpec(KeyKind.EXPRESSIONS, ("day",), texts=("n // 2",)),
        KeySpec(KeyKind.EXPRESSIONS, ("user", "day"), texts=("user", "n // 2")),
        KeySpec(KeyKind.ALL),
        KeySpec(KeyKind.FIELD, ("user",), nulls=True),
    ]
