from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from millwheel.control.savepoints import blueprint
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import compare, worst
from millwheel.control.savepoints.rules import Compatibility, changed_names
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    AggregateSpec,
    CallbackSpec,
    DictionarySpec,
    JoinKind,
    JoinSpec,
    SlicesSpec,
    WindowCallbackSpec,
    WindowSpec,
)
from tests.computations import computation_spec
from tests.unit.control.savepoints.test_compatibility import (
    CLASSES,
    FREE,
    REFUSED,
    SAVEPOINT,
    SPEC,
    by,
    sink,
    source,
    stream,
)


@pytest.mark.parametrize(
    ("is_join", "after", "refused"),
    [
        (True, "ba", True),
        (True, "abc", True),
        (True, "a", True),
        (False, "ba", True),
        (False, "cab", True),
        (False, "a", True),
        (False, "abc", False),
        (False, "ab", False),
    ],
)
def test_windows_know_their_records_by_the_numbers_of_inputs(
    monkeypatch: pytest.MonkeyPatch, is_join: bool, after: str, refused: bool
) -> None:
    """With two inputs exchanged, a left join would keep the records of the other."""
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])
    window = WindowSpec("tumbling", {"size_us": 60})
    called = CallbackSpec("code:Kept")

    def of(names: str) -> Blueprint:
        streams = tuple(StreamSpec(name, SourceSpec("memory")) for name in names)
        inputs = tuple(InputSpec(name, KeySpec(KeyKind.FIELD, ("k",))) for name in names)
        work: Any = WindowCallbackSpec(window=window, callback=called)
        if is_join:
            work = JoinSpec(window=window, kind=JoinKind.LEFT)
        made = ComputationSpec("c", inputs, ("o",), work)
        return blueprint_of(PipelineSpec("p", streams, (made,), (), "/nowhere"))

    # as a savepoint keeps it
    before = msgspec.json.decode(msgspec.json.encode(of("ab")), type=Blueprint)
    found = [change for change in compare(before, of(after)) if "by whose numbers" in str(change)]
    assert [change.verdict for change in found] == [REFUSED] * refused


def test_changed_slices_are_refused_and_another_keep_is_not() -> None:
    def worst_of(**changes: Any) -> Compatibility | None:
        made = []
        for more in ({}, changes):
            given: dict[str, Any] = {
                "slices": SlicesSpec((5, 10), 20),
                "aggregates": (AggregateSpec("n", "count"),),
            }
            spec = computation_spec(
                "c", (InputSpec("s", KeySpec(KeyKind.FIELD, ("k",))),), **{**given, **more}
            )
            made.append(
                blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))
            )
        changed = compare(*made)
        return worst(changed) if changed else None

    assert worst_of() is None
    spec = computation_spec(
        "c", (InputSpec("s", KeySpec(KeyKind.FIELD, ("k",))),), slices=SlicesSpec((5, 10), 20)
    )
    made = blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))
    # as a root keeps it
    assert not compare(msgspec.json.decode(msgspec.json.encode(made), type=Blueprint), made)
    assert worst_of(slices=SlicesSpec((5, 10), 40)) is FREE
    assert worst_of(late="side:x") is FREE
    for refused in (
        {"slices": SlicesSpec((5,), 20)},
        {"slices": SlicesSpec((5, 10), 20, "", 7)},
        {"condition": "n > 1"},
    ):
        assert worst_of(**refused) is REFUSED


def test_a_dictionary_cannot_get_or_lose_its_time_to_live() -> None:
    def made(**changes: Any) -> Any:
        spec = computation_spec(
            "ids", (InputSpec("s", KeySpec(KeyKind.FIELD, ("n",), partitions=8)),), ("o",),
            dictionary=DictionarySpec("n", "id", 8, **changes),
        )  # fmt: skip
        return blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))

    before = made()
    assert compare(before, made()) == []
    assert worst(compare(before, made(ttl_us=60))) is REFUSED
    assert worst(compare(made(ttl_us=60), made())) is REFUSED
    [longer] = compare(made(ttl_us=60), made(ttl_us=90))
    assert (longer.verdict, longer.sentence) == (
        FREE,
        "its dictionary has another time to live, from the next record on",
    )
    [kept] = compare(made(), made(keep=("a",)))
    assert (kept.verdict, "the fields of its output" in kept.sentence) == (FREE, True)


def test_results_that_are_kept_from_now_on_change_the_form_of_open_windows() -> None:
    def made(queryable: str) -> Any:
        inputs = (InputSpec("s", KeySpec(KeyKind.FIELD, ("k",))),)
        window, aggregates = WindowSpec("tumbling", {"size_us": 10}), (AggregateSpec("n", "count"),)
        spec = computation_spec(
            "c", inputs, ("o",), window=window, aggregates=aggregates, queryable=queryable
        )
        return blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))

    assert worst(compare(made(""), made("latest"))) is REFUSED
    assert "queryable" not in repr(made(""))


def test_a_change_log_whose_groups_are_in_parts_is_refused() -> None:
    """The newest part would be taken for the whole group."""
    inputs = (InputSpec("s", KeySpec(KeyKind.FIELD, ("k",))),)
    window, aggregates = WindowSpec("forever"), (AggregateSpec("n", "count"),)
    spec = computation_spec("c", inputs, ("o",), window=window, aggregates=aggregates)
    now = blueprint_of(PipelineSpec("p", (StreamSpec("s", timestamp="t"),), (spec,), (), "/"))
    before = msgspec.json.decode(msgspec.json.encode(now), type=Blueprint)
    del before.nodes["c"].facets["columns"]["s"]["groups"]
    [change] = compare(before, now)
    assert (change.verdict, "groups are stored as parts" in change.sentence) == (REFUSED, True)


# What is new, gone, or otherwise


def test_settings_differ_by_what_is_new_gone_or_otherwise() -> None:
    assert changed_names({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 4, "d": 5}) == ["b", "c", "d"]


CHANGES: dict[str, tuple[Callable[[], PipelineSpec], str, Compatibility, str]] = {
    "source kind": (
        lambda: source("generator"),
        "source.visits",
        REFUSED,
        "of kind 'files' and is 'generator'",
    ),
    "source path": (
        lambda: source(path="other"),
        "source.visits",
        FREE,
        "reading continues in files of the same name",
    ),
    "source format": (
        lambda: source(format="csv"),
        "source.visits",
        REFUSED,
        "changes the meaning of its positions",
    ),
    "source follow": (
        lambda: source(follow=True),
        "source.visits",
        REFUSED,
        "changes the meaning of its positions",
    ),
    "max_delay": (lambda: stream(max_delay_us=5), "source.visits", FREE, "watermark settings"),
    "timestamp": (
        lambda: stream(timestamp="at"),
        "source.visits",
        FREE,
        "timestamps are read differently",
    ),
    "sink path": (
        lambda: sink(0, options={"path": "b"}),
        "sink.returned",
        SAVEPOINT,
        "after the savepoint",
    ),
    "sink flush": (
        lambda: sink(0, options={"path": "out", "flush": "5s"}),
        "sink.returned",
        FREE,
        "at once",
    ),
    "sink kind": (
        lambda: sink(0, kind="stdout"),
        "sink.returned",
        SAVEPOINT,
        "its kind was 'files' and is 'stdout'",
    ),
    "sink mode": (
        lambda: sink(1, options={"path": "m"}),
        "sink.minutes",
        REFUSED,
        "the current rows are not known",
    ),
    "sink key": (
        lambda: sink(0, key=by("user")),
        "sink.returned",
        SAVEPOINT,
        "its key was the record's own key",
    ),
    "upsert key": (
        lambda: sink(1, key=by("user")),
        "sink.minutes",
        REFUSED,
        "the current rows are identified by",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_of_an_end_has_its_verdict_and_says_why(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])
    changed, node, verdict, words = CHANGES[name]
    changes = compare(blueprint_of(SPEC), blueprint_of(changed()))
    found = [change for change in changes if change.node == node and words in change.sentence]
    assert [change.verdict for change in found] == [verdict], [str(change) for change in changes]
