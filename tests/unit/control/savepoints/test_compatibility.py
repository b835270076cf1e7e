from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from millwheel.api import Computation, ListState, MapState, ValueState
from millwheel.control.savepoints import blueprint
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import compare, worst
from millwheel.control.savepoints.rules import Compatibility
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
    UpsertSpec,
)
from millwheel.core.pipeline.tables import tabled, with_copies
from millwheel.core.pipeline.work import (
    AggregateSpec,
    BranchSpec,
    BroadcastSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    OverSpec,
    SlicesSpec,
    StepKind,
    StepSpec,
    WindowSpec,
)
from tests.computations import changed, computation_spec

FREE, SAVEPOINT, REFUSED = Compatibility.FREE, Compatibility.SAVEPOINT, Compatibility.REFUSED


class Seen(msgspec.Struct):
    count: int = 0


class SeenMore(msgspec.Struct):
    count: int = 0
    last: str | None = None


class SeenOtherwise(msgspec.Struct):
    count: str = ""


class Kept(Computation):
    seen = ValueState(Seen)
    names = ListState(str, ttl="1h")


class More(Kept):
    seen = ValueState(SeenMore)
    extra = MapState(int)


class Fewer(Computation):
    seen = ValueState(Seen)


class Otherwise(Kept):
    seen = ValueState(SeenOtherwise)


class Listed(Kept):
    seen = ListState(Seen)


class Forgetting(Kept):
    seen = ValueState(Seen, ttl="1h")


class Longer(Kept):
    names = ListState(str, ttl="2h")


CLASSES = {
    f"code:{kind.__name__}": kind
    for kind in (Kept, More, Fewer, Otherwise, Listed, Forgetting, Longer)
}


def by(*names: str) -> KeySpec:
    return KeySpec(KeyKind.FIELD, names)


SPEC = PipelineSpec(
    "visits",
    (
        StreamSpec(
            "visits",
            SourceSpec("files", {"path": "in", "format": "jsonl"}),
            "time",
            fields={"n": "int"},
        ),
    ),
    (
        computation_spec(
            "returns", (InputSpec("visits", by("user")),), ("returned",), callback="code:Kept"
        ),
        computation_spec(
            "pages",
            (InputSpec("visits", by("page")),),
            ("minutes",),
            window=WindowSpec("tumbling", {"size_us": 60_000_000}),
            aggregates=(AggregateSpec("count", "count"),),
        ),
        computation_spec(
            "short",
            (InputSpec("visits", by("page")),),
            ("shorter",),
            steps=(StepSpec(StepKind.MAP, "code:f"),),
        ),
    ),
    (
        SinkSpec("returned", "files", {"path": "out"}),
        SinkSpec("minutes", "files", {"path": "m", "mode": "upsert"}),
    ),
    "/nowhere",
)


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])


def stream(**changes: Any) -> PipelineSpec:
    return replace(SPEC, streams=(replace(SPEC.streams[0], **changes),))


def source(kind: str = "files", **options: Any) -> PipelineSpec:
    return stream(source=SourceSpec(kind, {"path": "in", "format": "jsonl", **options}))


def computation(name: str, **changes: Any) -> PipelineSpec:
    others = tuple(
        changed(each, **changes) if each.name == name else each for each in SPEC.computations
    )
    return replace(SPEC, computations=others)


def callback(name: str) -> PipelineSpec:
    return computation("returns", callback=f"code:{name}")


def sink(index: int, **changes: Any) -> PipelineSpec:
    sinks = list(SPEC.sinks)
    sinks[index] = replace(sinks[index], **changes)
    return replace(SPEC, sinks=tuple(sinks))


MORE = computation_spec(
    "more", (InputSpec("visits", by("user")),), ("x",), steps=(StepSpec(StepKind.MAP, "code:f"),)
)

CHANGES: dict[str, tuple[Callable[[], PipelineSpec], str, Compatibility, str]] = {
    "name": (
        lambda: replace(SPEC, name="hits"),
        "",
        REFUSED,
        "the pipeline's name was 'visits' and is 'hits'",
    ),
    "added": (
        lambda: replace(SPEC, computations=(*SPEC.computations, MORE)),
        "more",
        SAVEPOINT,
        "starts empty, with records after the savepoint",
    ),
    "removed": (
        lambda: replace(SPEC, computations=SPEC.computations[1:]),
        "returns",
        SAVEPOINT,
        "state, timers and open windows are left behind",
    ),
    "another stream": (
        lambda: replace(SPEC, streams=(*SPEC.streams, StreamSpec("b", SourceSpec("generator")))),
        "source.b",
        SAVEPOINT,
        "read from its beginning",
    ),
    "no sink": (
        lambda: replace(SPEC, sinks=SPEC.sinks[:1]),
        "sink.minutes",
        SAVEPOINT,
        "it is removed",
    ),
    "callback options": (
        lambda: computation("returns", options={"x": 1}),
        "returns",
        FREE,
        "callback or its options",
    ),
    "callback key": (
        lambda: computation("returns", inputs=(InputSpec("visits", by("name")),)),
        "returns",
        REFUSED,
        "was field user and is field name: its state is stored under the old keys",
    ),
    "key of steps": (
        lambda: computation("short", inputs=(InputSpec("visits", by("name")),)),
        "short",
        SAVEPOINT,
        "it keeps no state by key",
    ),
    "one more input": (
        lambda: computation(
            "short", inputs=(*SPEC.computations[2].inputs, InputSpec("minutes", by("page")))
        ),
        "short",
        SAVEPOINT,
        "also consumes the stream 'minutes'",
    ),
    "steps": (
        lambda: computation("short", steps=(StepSpec(StepKind.MAP, "code:g"),)),
        "short",
        FREE,
        "its steps",
    ),
    "form": (
        lambda: computation("short", steps=(), branches=(BranchSpec("shorter"),)),
        "short",
        REFUSED,
        "'steps' and is 'branches'",
    ),
    "outputs": (
        lambda: computation("short", outputs=("shorter", "y")),
        "short",
        SAVEPOINT,
        "its outputs were shorter",
    ),
    "window": (
        lambda: computation("pages", window=WindowSpec("tumbling", {"size_us": 5})),
        "pages",
        REFUSED,
        "its window changed (size_us)",
    ),
    "aggregate": (
        lambda: computation("pages", aggregates=(AggregateSpec("users", "count"),)),
        "pages",
        REFUSED,
        "its aggregates changed (count, users)",
    ),
    "trigger": (
        lambda: computation("pages", trigger={"after_count": 3}),
        "pages",
        REFUSED,
        "when it fires, or on which records, changed (trigger)",
    ),
    "weak": (
        lambda: computation("returns", productions=Productions.WEAK),
        "returns",
        SAVEPOINT,
        "strong and are weak",
    ),
    "weak window": (
        lambda: computation("pages", productions=Productions.WEAK),
        "pages",
        REFUSED,
        "open windows",
    ),
    "columns": (
        lambda: stream(fields={"n": "float"}),
        "pages",
        REFUSED,
        "the declared fields of its input",
    ),
    "shards": (
        lambda: computation("returns", shards=9),
        "returns",
        FREE,
        "another number of shards",
    ),
    "pairing": (
        lambda: computation("short", deduplicate=DeduplicateSpec(5), steps=()),
        "short",
        REFUSED,
        "is 'deduplicate'",
    ),
    "dictionary": (
        lambda: computation("short", dictionary=DictionarySpec("n", "id", 8), steps=()),
        "short",
        REFUSED,
        "is 'dictionary'",
    ),
    "state added": (
        lambda: callback("More"),
        "returns",
        FREE,
        "state 'extra' is new and empty for every key",
    ),
    "state grown": (
        lambda: callback("More"),
        "returns",
        FREE,
        "state 'seen' has changed and reads the old values",
    ),
    "state gone": (lambda: callback("Fewer"), "returns", FREE, "state 'names' is removed"),
    "state type": (
        lambda: callback("Otherwise"),
        "returns",
        REFUSED,
        "its field 'count' was integer and becomes text",
    ),
    "state kind": (
        lambda: callback("Listed"),
        "returns",
        REFUSED,
        "state 'seen' was a value and is a list",
    ),
    "state ttl": (
        lambda: callback("Forgetting"),
        "returns",
        REFUSED,
        "state 'seen' got its time to live",
    ),
    "longer ttl": (lambda: callback("Longer"), "returns", FREE, "another time to live"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_has_its_verdict_and_says_why(name: str) -> None:
    changed, node, verdict, words = CHANGES[name]
    changes = compare(blueprint_of(SPEC), blueprint_of(changed()))
    found = [change for change in changes if change.node == node and words in change.sentence]
    assert [change.verdict for change in found] == [verdict], [str(change) for change in changes]


def test_the_same_pipeline_has_no_changes_and_the_worst_change_decides() -> None:
    assert compare(blueprint_of(SPEC), blueprint_of(SPEC)) == []
    assert worst([]) is FREE
    both = compare(
        blueprint_of(SPEC), blueprint_of(replace(sink(0, options={"path": "b"}), name="other"))
    )
    assert worst(both[1:]) is SAVEPOINT
    assert worst(both) is REFUSED


def divided(how: Divided, instances: int = 4) -> Blueprint:
    return blueprint_of(planned(computation("pages", scatter=instances, divided=how)))


@pytest.mark.parametrize("after", [how for how in Divided if how is not Divided.ALL])
def test_keys_that_are_divided_otherwise_are_refused(after: Divided) -> None:
    for pair in ((Divided.ALL, after), (after, Divided.ALL)):
        changes = compare(*map(divided, pair))
        assert {(change.node, change.verdict) for change in changes} == {
            ("partial.pages", REFUSED)
        }, changes
    assert compare(divided(after), divided(after)) == []


def test_the_refusal_of_another_skew_says_both_and_what_to_do() -> None:
    [change] = compare(divided(Divided.ALL), divided(Divided.HOT))
    assert "divided by skew: scatter and are by skew: auto" in change.sentence
    assert "keep skew as it was, or give the computation another name" in change.sentence


def test_whole_keys_cannot_become_divided_ones_nor_back() -> None:
    for how in Divided:
        assert worst(compare(blueprint_of(SPEC), divided(how))) is REFUSED
        assert worst(compare(divided(how), blueprint_of(SPEC))) is REFUSED
        assert worst(compare(divided(how), divided(how, 5))) is REFUSED


def test_blueprints_name_settings_and_not_the_classes_that_hold_them() -> None:
    """A savepoint stays readable while those change."""
    pages = blueprint_of(SPEC).nodes["pages"]
    assert (pages.form, pages.facets["window"]) == (
        "aggregation",
        {"kind": "tumbling", "size_us": 60_000_000},
    )
    assert pages.facets["speaking"] == {
        "trigger": None,
        "accumulation": "discarding",
        "allowed_lateness_us": 0,
        "output_time": "end_of_window",
        "late": "drop",
        "where": "",
    }
    assert pages.facets["settings"] == ["", {}, 3]
    slices = SlicesSpec((5, 10), 20, aggregates=(AggregateSpec("n", "count"),), condition="n > 1")
    spec = computation_spec("c", (InputSpec("s", by("k")),), work=slices)
    made = blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))
    assert made.nodes["c"].facets["slices"] == [
        {"levels_us": [5, 10], "keep_us": 20, "time_zone": "", "ttl_us": None},
        "n > 1",
        "drop",
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("n // 2", "n // 3", ("half = n // 2", "half = n // 3")),
        ("n // 2", "", ("half = n // 2", "everything in one group")),
    ],
)
def test_another_expression_is_another_key(before: str, after: str, words: tuple[str, ...]) -> None:
    [found] = compare(_keyed(before), _keyed(after))
    assert found.verdict is REFUSED
    for each in words:
        assert each in found.sentence
    assert compare(_keyed(before), _keyed(before)) == []


def test_a_group_of_nulls_is_another_key() -> None:
    [found] = compare(_keyed("n // 2"), _keyed("n // 2", nulls=True))
    assert (found.verdict, "null as a group" in found.sentence) == (REFUSED, True)


def _keyed(text: str, nulls: bool = False) -> Blueprint:
    key = KeySpec(KeyKind.ALL)
    if text:
        key = KeySpec(KeyKind.EXPRESSIONS, ("half",), texts=(text,), nulls=nulls)
    counts = computation_spec(
        "c",
        (InputSpec("s", key),),
        ("o",),
        window=WindowSpec("tumbling", {"size_us": 5}),
        aggregates=(AggregateSpec("n", "count"),),
    )
    return blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (counts,), (), "/"))


def enriched(broadcast: BroadcastSpec | None, timestamp: str = "") -> Blueprint:
    """A pipeline whose records are enriched with a table, held whole by each worker, or in copies
    where it goes on, or divided by its key."""
    orders = StreamSpec("orders", SourceSpec("files"), "at")
    sides = StreamSpec(
        "sides", SourceSpec("files"), timestamp, table=UpsertSpec(KeySpec(KeyKind.FIELD, ("id",)))
    )
    key = KeySpec(KeyKind.FIELD, ("id",))
    work = EnrichSpec("sides", "side", broadcast=broadcast)
    inputs = (InputSpec("orders", key), InputSpec("sides", key))
    computation = ComputationSpec("found", inputs, ("found",), work)
    spec = PipelineSpec("p", (orders, sides), (computation,), (), "/nowhere")
    return blueprint_of(with_copies(tabled(spec)))


def test_copies_of_a_table_stay_as_many_as_they_were() -> None:
    divided, copied = enriched(None, "at"), enriched(BroadcastSpec(1_000, copies=4), "at")
    for before, after in ((divided, copied), (copied, divided)):
        assert worst(compare(before, after)) is REFUSED
    assert worst(compare(copied, enriched(BroadcastSpec(2_000, copies=4), "at"))) is FREE
    assert worst(compare(copied, enriched(BroadcastSpec(1_000, copies=5), "at"))) is REFUSED


def test_a_table_is_not_held_whole_where_its_rows_are_state_nor_the_other_way_round() -> None:
    divided, held = enriched(None), enriched(BroadcastSpec(1_000))
    for before, after in ((divided, held), (held, divided)):
        assert worst(compare(before, after)) is REFUSED
    assert worst(compare(held, enriched(BroadcastSpec(2_000)))) is FREE
    assert worst(compare(divided, enriched(None))) is FREE


def looking_back(**settings: Any) -> Blueprint:
    aggregates = (AggregateSpec("mean", "mean", "price"),)
    options = {"by_rows": True, "size": 10, "aggregates": aggregates, **settings}
    inputs = (InputSpec("orders", KeySpec(KeyKind.FIELD, ("seller",))),)
    computation = ComputationSpec("last", inputs, ("last",), OverSpec(**options))
    orders = StreamSpec("orders", SourceSpec("files"))
    return blueprint_of(PipelineSpec("p", (orders,), (computation,), (), "/nowhere"))


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 11},
        {"size": None},
        {"by_rows": False},
        {"ttl_us": 5},
        {"aggregates": (AggregateSpec("most", "max", "price"),)},
    ],
)
def test_what_is_kept_for_look_backs_has_the_form_of_their_settings(
    settings: dict[str, Any],
) -> None:
    [found] = compare(looking_back(), looking_back(**settings))
    assert found.verdict is REFUSED
    assert not found.correctable
    assert compare(looking_back(), looking_back()) == []
