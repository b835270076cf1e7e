"""``map:``, ``flat_map:``, ``filter:``, ``branch:`` and ``order_by:`` as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import (
    BranchSpec,
    DeduplicateSpec,
    EnrichSpec,
    JoinKind,
    Missing,
    StepKind,
    StepSpec,
)

HEAD = """\
pipeline: p
streams:
  hits: {source: injection, timestamp: ts}
computations:
"""


def computation(**fields: str) -> str:
    lines = {"input": "hits", "output": "out", **fields}
    return (
        HEAD + "  c:\n" + "".join(f"    {name}: {text}\n" for name, text in lines.items() if text)
    )


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"map": "detectors:by_user"}, [StepSpec(StepKind.MAP, "detectors:by_user")]),
        ({"flat_map": "detectors:by_user"}, [StepSpec(StepKind.FLAT_MAP, "detectors:by_user")]),
        ({"flat_map": "{w: tags}"}, [StepSpec(StepKind.FLAT_MAP, fields={"w": "tags"})]),
        ({"filter": "status < 500"}, [StepSpec(StepKind.FILTER, expression="status < 500")]),
        ({"filter": "true"}, [StepSpec(StepKind.FILTER, expression="true")]),
        (
            {"map": "{user: user, kb: size / 1000}"},
            [StepSpec(StepKind.MAP, fields={"user": "user", "kb": "size / 1000"})],
        ),
        (
            {"map": "detectors:by_user", "filter": "'a' in user"},
            [
                StepSpec(StepKind.MAP, "detectors:by_user"),
                StepSpec(StepKind.FILTER, expression="'a' in user"),
            ],
        ),
        (
            {"filter": "x", "map": "y"},
            [StepSpec(StepKind.FILTER, expression="x"), StepSpec(StepKind.MAP, expression="y")],
        ),
    ],
)
def test_steps_stand_in_the_order_in_which_they_are_written(
    check: Any, fields: dict[str, str], steps: list[StepSpec]
) -> None:
    quoted = {
        name: text if text.startswith(("{", "true")) else f'"{text}"'
        for name, text in fields.items()
    }
    assert check(computation(**quoted)).computations[0].work.steps == tuple(steps)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"map": "detectors:nothing"}, "pipeline.yaml:8: computations.c.map: module 'detectors'"),
        ({"map": "detectors:NUMBER"}, "detectors:NUMBER is a int, not a function"),
        ({"map": "'a ='"}, "computations.c.map: column"),
        ({"map": "{a: 'b ='}"}, "computations.c.map.a: column"),
        ({"map": "{a: }"}, "computations.c.map.a: has no value; write for example {a: a}"),
        ({"map": "{}"}, "computations.c.map: names no fields; write for example"),
        ({"map": "[a]"}, "must be a function or an expression, not a list"),
        (
            {"filter": "{a: b}"},
            "computations.c.filter: must be a function or an expression, not a map",
        ),
        ({"flat_map": "{a: x, b: y}"}, "computations.c.flat_map: adds one field, not 2"),
        ({"flat_map": "{a: }"}, "computations.c.flat_map.a: has no value"),
        ({"flat_map": "{a: 'b ='}"}, "computations.c.flat_map.a: column"),
        ({"flat_map": "words", "output": ""}, "computations.c.output: is missing"),
        (
            {"filter": "words", "window": "{tumbling: 1m}"},
            "leave out filter and write its condition as where",
        ),
        ({"map": "words", "window": "{tumbling: 1m}"}, "make two computations of it"),
        (
            {"map": "words", "callback": "detectors:SpikeDetector"},
            "map is for computations with steps; a callback",
        ),
        ({"map": "words", "options": "{a: 1}"}, "this computation has no callback"),
    ],
)
def test_mistakes_in_steps_are_named(problems: Any, fields: dict[str, str], expected: str) -> None:
    assert expected in "\n".join(problems(computation(**fields)))


def test_a_circle_of_steps_is_refused(problems: Any) -> None:
    text = HEAD + "  a: {input: [hits, y], map: x, output: x}\n  b: {input: x, map: x, output: y}\n"
    assert any("the cycle a -> b -> a has no timer" in problem for problem in problems(text))


def test_steps_pass_retractions_on_to_those_behind_them(check: Any) -> None:
    text = (
        HEAD + "  w: {input: hits, window: {tumbling: 1m}, accumulation: retracting, aggregate: {n:"
        " count}, output: a}\n  s: {input: a, filter: n > 1, output: b}\n  t: {input: [hits],"
        " filter: n > 1, output: c}\n  d: {input: b, callback: 'detectors:Undoing', output: e}\n"
    )
    assert retracting_streams(check(text)) == {"a", "b"}


def test_a_list_of_steps_may_have_a_kind_twice(check: Any) -> None:
    found = check(
        computation(steps="[{filter: a}, {map: {b: c}}, {filter: 'detectors:by_user', map: d}]")
    )
    assert found.computations[0].work.steps == (
        StepSpec(StepKind.FILTER, expression="a"),
        StepSpec(StepKind.MAP, fields={"b": "c"}),
        StepSpec(StepKind.FILTER, "detectors:by_user"),
        StepSpec(StepKind.MAP, expression="d"),
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            "{filter: a}",
            (
                "computations.c.steps: must be a list of steps, not a map; write for example"
                " [{filter: "
            ),
        ),
        ("[]", "computations.c.steps: must be a list of steps, not an empty one"),
        ("[a]", "computations.c.steps[0]: must be a map, not 'a'"),
        ("[{}]", "computations.c.steps[0]: names no step"),
        (
            "[{filter: a}, {filtre: b}]",
            "computations.c.steps[1].filtre: unknown field 'filtre'; did you mean 'filter'?",
        ),
        ("[{filter: a}, {map: 'detectors:no'}]", "computations.c.steps[1].map: module 'detectors'"),
    ],
)
def test_mistakes_in_a_list_of_steps_are_named(problems: Any, steps: str, expected: str) -> None:
    (found,) = problems(computation(steps=steps))
    assert expected in found


def test_a_list_of_steps_stands_alone(problems: Any) -> None:
    (found,) = problems(computation(steps="[{filter: a}]", map="b"))
    assert (
        "computations.c.map: there are steps already; add this to them: steps: [{map: …}, …]"
        in found
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{by: [a, b], within: 10m}", DeduplicateSpec(600_000_000, ("a", "b"))),
        ("{by: a, within: 1s}", DeduplicateSpec(1_000_000, ("a",))),
        ("{within: 5us}", DeduplicateSpec(5)),
    ],
)
def test_copies_are_told_by_fields_and_a_horizon(
    check: Any, text: str, expected: DeduplicateSpec
) -> None:
    assert check(computation(deduplicate=text)).computations[0].work == expected


def test_branches_stand_in_the_order_in_which_they_are_tried(check: Any) -> None:
    text = computation(
        branch="{errors: status >= 500, rest: otherwise, slow: duration > 2}", output=""
    )
    found = check(text).computations[0]
    assert found.work.branches == (
        BranchSpec("errors", "status >= 500"),
        BranchSpec("rest"),
        BranchSpec("slow", "duration > 2"),
    )
    assert (found.outputs, found.work.match_all) == (("errors", "rest", "slow"), False)
    assert check(text + "    match: all\n").computations[0].work.match_all


def test_records_of_a_callback_or_of_steps_may_come_in_order(check: Any) -> None:
    assert (
        check(computation(callback="detectors:SpikeDetector", order_by="timestamp"))
        .computations[0]
        .ordered
    )
    assert check(computation(filter="a", order_by="timestamp")).computations[0].ordered
    assert not check(computation(filter="a")).computations[0].ordered


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"deduplicate": "{by: [a]}"},
            "computations.c.deduplicate.within: is missing",
        ),
        ({"deduplicate": "{by: [a], within: 0s}"}, "computations.c.deduplicate.within"),
        (
            {"deduplicate": "{by: [a], within: 1m}", "output": ""},
            "computations.c.output: is missing",
        ),
        ({"deduplicate": "10m"}, "computations.c.deduplicate: must be a map"),
        (
            {"branch": "{a: x > 1}"},
            "computations.c.output: the streams of branch are the outputs; leave out output",
        ),
        (
            {"branch": "{a: otherwise, b: otherwise}", "output": ""},
            "a already takes the records of no other branch",
        ),
        ({"branch": "{a: 'x >'}", "output": ""}, "computations.c.branch.a: column"),
        (
            {"branch": "{dead_letters: x > 1}", "output": ""},
            "'dead_letters' is filled by the system",
        ),
        ({"branch": "{}", "output": ""}, "computations.c.branch"),
        ({"branch": "{a: x}", "match": "some", "output": ""}, "computations.c.match"),
        ({"filter": "x", "match": "all"}, "match is for computations with branch; leave it out"),
        (
            {"branch": "{a: x}", "filter": "x", "output": ""},
            "a computation does one of branch and filter",
        ),
        ({"branch": "{a: x}", "deduplicate": "{within: 1s}"}, "a computation does one of"),
        (
            {"deduplicate": "{within: 1s}", "window": "{tumbling: 1m}"},
            "window is for computations with a window",
        ),
        (
            {"deduplicate": "{within: 1s}", "callback": "detectors:SpikeDetector"},
            "deduplicate is for computations without",
        ),
        ({"callback": "detectors:SpikeDetector", "order_by": "key"}, "computations.c.order_by"),
        (
            {"window": "{tumbling: 1m}", "order_by": "timestamp"},
            "a window does not depend on the order of its records",
        ),
    ],
)
def test_mistakes_are_named(problems: Any, fields: dict[str, str], expected: str) -> None:
    assert expected in "\n".join(problems(computation(**fields)))


TWO = "{hits: {key: a}, clicks: {key: a}}"


@pytest.mark.parametrize("kind", JoinKind)
def test_two_streams_are_joined_in_windows(check: Any, kind: JoinKind) -> None:
    text = computation(input=TWO, window="{tumbling: 1m}", join=kind.value)
    assert (
        check(text.replace("  hits:", "  clicks: {source: injection, timestamp: ts}\n  hits:"))
        .computations[0]
        .work.kind
        is kind
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{with: clicks}", EnrichSpec("clicks", "clicks")),
        ("{with: hits, as: hit, missing: drop}", EnrichSpec("hits", "hit", Missing.DROP)),
        (
            "{with: clicks, missing: dead_letter, as_of: arrival}",
            EnrichSpec("clicks", "clicks", Missing.DEAD_LETTER, False),
        ),
    ],
)
def test_one_stream_is_enriched_by_another(check: Any, text: str, expected: EnrichSpec) -> None:
    found = computation(input=TWO, enrich=text).replace(
        "  hits:", "  clicks: {source: injection, timestamp: ts}\n  hits:"
    )
    assert check(found).computations[0].work == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"join": "inner", "window": "{tumbling: 1m}"},
            "computations.c.join: takes two inputs, not 1",
        ),
        ({"join": "full", "input": TWO, "window": "{tumbling: 1m}"}, "computations.c.join"),
        (
            {"join": "left", "input": TWO, "allowed_lateness": "1m"},
            "leave out allowed_lateness",
        ),
        (
            {"join": "left", "input": TWO, "window": "{tumbling: 1m}", "aggregate": "{n: count}"},
            "leave out aggregate",
        ),
        (
            {"join": "left", "input": TWO, "window": "{tumbling: 1m}", "output": ""},
            "computations.c.output: is missing",
        ),
        (
            {"join": "left", "enrich": "{with: hits}", "input": TWO},
            "a computation does one of join and enrich",
        ),
        ({"enrich": "{as: x}", "input": TWO}, "computations.c.enrich.with: is missing"),
        ({"enrich": "{with: hitz}", "input": TWO}, "did you mean 'hits'"),
        ({"enrich": "{with: hits}"}, "computations.c.enrich: takes two inputs"),
        ({"enrich": "{with: hits}", "input": TWO, "window": "{tumbling: 1m}"}, "has no windows"),
        (
            {"enrich": "{with: hits, missing: perhaps}", "input": TWO},
            "computations.c.enrich.missing",
        ),
        (
            {"join": "left", "input": TWO, "window": "{sliding: 1h, every: 1m, emit: changes}"},
            "computations.c.window.emit: a join needs the records of whole windows",
        ),
        (
            {
                "join": "left",
                "input": TWO.replace("clicks: {key: a}", "clicks: {key: [a, b]}"),
                "window": "global",
            },
            "hits has a key of one field, clicks of 2 fields",
        ),
        (
            {
                "enrich": "{with: hits}",
                "input": TWO.replace("hits: {key: a}", "hits: {key: [a, b, c]}"),
            },
            "hits has a key of 3 fields, clicks of one field",
        ),
        (
            {"join": "left", "input": TWO.replace("a}", "hits}"), "window": "global"},
            "a stream is called 'hits'",
        ),
        (
            {"enrich": "{with: hits, as: a}", "input": TWO},
            "computations.c.enrich.as: 'a' would replace the key",
        ),
        (
            {"enrich": "{with: hits}", "input": TWO.replace("a}", "hits}")},
            "computations.c.enrich: 'hits' would replace the key",
        ),
        ({"enrich": "{with: hits}", "input": TWO, "order_by": "timestamp"}, "leave out order_by"),
        (
            {"join": "left", "callback": "detectors:SpikeDetector"},
            "join is for computations without one",
        ),
    ],
)
def test_mistakes_in_joins_are_named(problems: Any, fields: dict[str, str], expected: str) -> None:
    text = computation(**fields).replace(
        "  hits:", "  clicks: {source: injection, timestamp: ts}\n  hits:"
    )
    assert expected in "\n".join(problems(text))


KEYLESS = """
pipeline: p
streams:
  hits: {source: {files: {path: a.jsonl, format: jsonl}}, timestamp: ts}
  named: {source: {files: {path: b.jsonl, format: jsonl}}, timestamp: ts, id: name}
computations:
  c: {input: %s, window: {tumbling: 1m}, join: inner, output: out}
"""


def test_what_has_only_the_key_of_its_file_is_not_joined(problems: Any, check: Any) -> None:
    assert "records of hits are matched by key" in "\n".join(problems(KEYLESS % "[hits, named]"))
    assert (
        check(KEYLESS % "{hits: {key: name}, named: {}}").computations[0].work.kind
        is JoinKind.INNER
    )


RETRACTING = (
    HEAD
    + "  w: {input: hits, window: {tumbling: 1m}, accumulation: retracting, aggregate: {n: count},"
    " output: a}\n"
)


def test_branches_pass_retractions_on(check: Any) -> None:
    text = RETRACTING + "  s: {input: a, branch: {b: n > 1, d: otherwise}}\n"
    assert retracting_streams(check(text)) == {"a", "b", "d"}


BOTH = RETRACTING + "  s: {input: {hits: {key: path}, a: {key: key}}, FORM, output: b}\n"


def test_joins_whose_windows_fire_again_pass_on_what_is_taken_back(check: Any) -> None:
    once = "join: inner, window: {tumbling: 1m}"
    assert retracting_streams(check(BOTH.replace("FORM", once))) == {"a"}
    again = f"{once}, allowed_lateness: 1m"
    assert retracting_streams(check(BOTH.replace("FORM", again))) == {"a", "b"}


def test_joins_of_what_may_be_taken_back_count_no_records(problems: Any) -> None:
    text = BOTH.replace("FORM", "join: inner, window: {count: 3}")
    assert "count windows cannot undo a record" in "\n".join(problems(text))
    text = BOTH.replace("FORM", "join: {kind: inner, within: {after: 1m}}")
    assert "before the retracting window" in "\n".join(problems(text))


def test_an_enrichment_takes_back_what_it_made_of_records_that_are_and_not_of_versions(
    check: Any,
) -> None:
    assert retracting_streams(check(BOTH.replace("FORM", "enrich: {with: hits}"))) == {"a", "b"}
    assert retracting_streams(check(BOTH.replace("FORM", "enrich: {with: a}"))) == {"a"}


def test_copies_of_what_may_be_taken_back_are_refused(problems: Any) -> None:
    text = RETRACTING + "  s: {input: a, deduplicate: {within: 1m}, output: b}\n"
    assert "deduplicate before the retracting window" in "\n".join(problems(text))
