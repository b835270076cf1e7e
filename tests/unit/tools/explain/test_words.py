"""Keys, windows, triggers and aggregates in a few words."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from millwheel import GeneratorSource, Pipeline, StdoutSink
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.core.pipeline.work import (
    BoundSpec,
    IntervalJoinSpec,
    JoinKind,
    OverSpec,
    RegularJoinSpec,
)
from millwheel.language.spec import load_pipeline
from millwheel.tools.explain.picture import Arrow, picture_of
from millwheel.tools.explain.words import key_text, types_texts, work_texts


def test_code_without_a_name_is_said_to_be_ones_own(tmp_path: Path) -> None:
    text = (
        "from millwheel import *\np = Pipeline('p')\nhits = p.read('hits', InjectionSource(),"
        " timestamp='t')\n"
    )
    text += "hits.key_by(lambda v: v['a']).map(lambda v: v, name='same')\n"
    (tmp_path / "own.py").write_text(text)
    picture = picture_of(load_pipeline(tmp_path / "own.py"))
    assert picture.box("same").lines == (
        "map (own code)",
        "taken record by record: code of your own takes each record",
    )
    assert picture.arrows == (Arrow("source.hits", "same", "hits", "by (own code)"),)


@pytest.mark.parametrize(
    ("form", "beside", "fields", "said"),
    [
        ("{avro: {schema: a.avsc}}", "", {}, True),
        ("{avro: {registry: {url: 'http://r'}}}", "", {}, True),
        ("json", "", {}, False),
        ("{avro: {schema: a.avsc}}", ", key_field: k", {}, False),
        ("{avro: {schema: a.avsc}}", "", {"a": "str"}, False),
    ],
)
def test_a_source_of_avro_messages_tells_where_types_come_from(
    form: str, beside: str, fields: dict[str, str], said: bool
) -> None:
    options = yaml.safe_load(f"{{topics: [t], format: {form}{beside}}}")
    stream = StreamSpec("s", SourceSpec("kafka", options), fields=fields)
    assert bool(list(types_texts(stream))) is said


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (KeySpec(KeyKind.ALL), "everything in one group"),
        (KeySpec(KeyKind.ALL, instances=4), "everything in one group, over 4 instances"),
        (
            KeySpec(KeyKind.EXPRESSIONS, ("day", "user"), texts=("n // 2", "user")),
            "by day = n // 2, user",
        ),
        (KeySpec(KeyKind.FIELD, ("user",), nulls=True), "by user, null is a group"),
        (KeySpec(KeyKind.RECORD), ""),
    ],
)
def test_keys_are_told_with_their_expressions(key: KeySpec, said: str) -> None:
    assert key_text(key) == said


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (
            IntervalJoinSpec(JoinKind.INNER, 10_000_000, 0),
            ("inner", "the second at most 10s before and 0s behind the first"),
        ),
        (
            IntervalJoinSpec(
                JoinKind.ANTI,
                0,
                None,
                (BoundSpec("a", "a.opens"),),
                (BoundSpec("a", "a.ends"), BoundSpec("b", "b.ends")),
            ),
            (
                "anti",
                "the second at most 0s before the first",
                "a partner not before a.opens",
                "a partner not behind a.ends, b.ends",
            ),
        ),
    ],
)
def test_a_join_within_an_interval_tells_its_bounds(
    work: IntervalJoinSpec, said: tuple[str, ...]
) -> None:
    kind, *bounds = said
    assert [*work_texts(work)] == [
        f"{kind} join of records that lie near each other in time",
        *bounds,
        "keeps a record until the watermark has passed the last partner that it may have",
    ]


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (OverSpec(by_rows=True, size=10), ["the 9 records of the key before it"]),
        (OverSpec(by_rows=False, size=60_000_000), ["those of the key in the 1m before it"]),
        (
            OverSpec(by_rows=True, size=None, ttl_us=1_000_000),
            ["all records of the key before it", "a key without a record for 1s begins anew"],
        ),
    ],
)
def test_a_look_back_tells_its_size(work: OverSpec, said: list[str]) -> None:
    head = "each record in order of time, with aggregates of itself and "
    assert [*work_texts(work)] == [head + said[0], *said[1:]]


def test_a_join_of_several_inputs_tells_how_many_and_how_long_they_live() -> None:
    day_us = 86_400_000_000
    work = RegularJoinSpec(JoinKind.INNER, (None, day_us, None, 2 * day_us))
    assert [*work_texts(work)] == [
        "inner join of all records with equal keys, of 4 inputs",
        "keeps them of the second input for 1d and of the 4th input for 2d",
    ]


# explanation.py


def test_one_drawing_is_text_picture_and_mermaid() -> None:
    p = Pipeline("load")
    p.read("load", GeneratorSource(count=3)).write(StdoutSink())
    shown = p.explain()
    assert "generator: count=3" in str(shown) == repr(shown)
    assert shown._repr_html_() == shown.svg()
    assert shown.svg().startswith("<svg")
    assert shown.mermaid().startswith("flowchart TB")
