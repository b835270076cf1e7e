"""``map:``, ``flat_map:`` and ``filter:`` as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.work import StepKind, StepSpec

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
