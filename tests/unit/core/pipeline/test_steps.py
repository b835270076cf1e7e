"""``map``, ``flat_map``, ``filter`` and ``branch`` on one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.steps import compile_branches, compile_steps, step_text
from millwheel.core.pipeline.work import BranchSpec, StepKind, StepSpec
from millwheel.core.windows.panes import RETRACTION_FIELD, Retraction, as_retraction, retracted
from millwheel.errors import RecordError

FUNCTIONS: dict[str, Any] = {
    "m:double": lambda value: value * 2,
    "m:upto": lambda value: (n for n in range(value)),
    "m:odd": lambda value: value % 2,
    "m:longer": lambda value: [value["tags"].append(value["n"]), value][1],
    "m:text": lambda value: "abc",
    "m:words": lambda value: [{"word": word} for word in value["text"].split()],
}
BRANCHES = (BranchSpec("small", "n < 10"), BranchSpec("even", "n % 2 == 0"), BranchSpec("rest", ""))


def run(*steps: StepSpec) -> Any:
    apply = compile_steps(steps, FUNCTIONS.__getitem__)
    return lambda value: list(apply(value))


def step(kind: StepKind, function: str = "", **more: Any) -> StepSpec:
    return StepSpec(kind, function, **more)


def test_a_function_maps_a_value_to_one() -> None:
    assert run(step(StepKind.MAP, "m:double"))(4) == [8]


def test_a_function_gives_any_number_of_values() -> None:
    assert run(step(StepKind.FLAT_MAP, "m:upto"))(3) == [0, 1, 2]
    assert run(step(StepKind.FLAT_MAP, "m:upto"))(0) == []


def test_a_filter_keeps_the_value_itself() -> None:
    assert run(step(StepKind.FILTER, "m:odd"))(3) == [3]
    assert run(step(StepKind.FILTER, "m:odd"))(4) == []


def test_expressions_and_fields_read_the_value() -> None:
    row = {"path": "/", "size": 3000, "tags": ["a", "b"]}
    assert run(step(StepKind.FILTER, expression="size > 2000"))(row) == [row]
    assert run(step(StepKind.MAP, expression="size / 1000"))(row) == [3]
    assert run(step(StepKind.FLAT_MAP, expression="tags"))(row) == ["a", "b"]
    assert run(step(StepKind.MAP, fields={"p": "path", "kb": "size / 1000"}))(row) == [
        {"p": "/", "kb": 3}
    ]


@given(st.integers(0, 20))
def test_steps_are_done_in_their_order(value: int) -> None:
    steps = [
        step(StepKind.FLAT_MAP, "m:upto"),
        step(StepKind.FILTER, "m:odd"),
        step(StepKind.MAP, "m:double"),
    ]
    assert run(*steps)(value) == [n * 2 for n in range(value) if n % 2]
    assert run(steps[2], steps[0], steps[1])(value) == [n for n in range(value * 2) if n % 2]


def test_what_comes_of_a_retraction_takes_back_what_came_of_the_record() -> None:
    apply = run(step(StepKind.FLAT_MAP, "m:words"), step(StepKind.MAP, fields={"w": "upper(word)"}))
    value = {"text": "so it"}
    assert apply(value) == [{"w": "SO"}, {"w": "IT"}]
    assert apply(retracted(value)) == [
        {"w": "SO", RETRACTION_FIELD: 1},
        {"w": "IT", RETRACTION_FIELD: 1},
    ]
    assert [as_retraction(made) for made in run(step(StepKind.MAP, "m:double"))(retracted(5))] == [
        Retraction(10)
    ]


def test_a_retraction_that_the_filter_does_not_want_is_gone_like_its_record() -> None:
    assert run(step(StepKind.FILTER, "m:odd"))(Retraction(2)) == []


@pytest.mark.parametrize("value", [{"size": "big"}, {}])
def test_a_value_that_an_expression_cannot_use_is_a_record_error(value: Any) -> None:
    with pytest.raises(RecordError, match="size"):
        run(step(StepKind.FILTER, expression="size > 2000"))(value)


def test_a_text_is_no_list_of_results() -> None:
    with pytest.raises(RecordError, match=r"`flat_map m:text` gave 'abc'; it must give a list"):
        run(step(StepKind.FLAT_MAP, "m:text"))(1)


def test_a_field_has_each_entry_of_a_list_in_turn() -> None:
    steps = [
        step(StepKind.FLAT_MAP, fields={"w": "split(t, ' ')"}),
        step(StepKind.FLAT_MAP, fields={"n": "[n, n * 2] if n > 1 else []"}),
    ]
    apply, value = run(*steps), {"n": 2, "t": "a b"}
    made = [{"n": n, "t": "a b", "w": word} for word in "ab" for n in (2, 4)]
    assert apply(value) == made
    assert apply({"n": 1, "t": "a b"}) == []
    assert [as_retraction(each) for each in apply(retracted(value))] == [
        Retraction(each) for each in made
    ]


def test_what_the_results_of_a_list_share_is_not_changed_by_a_later_step() -> None:
    apply = run(step(StepKind.FLAT_MAP, fields={"n": "[1, 2]"}), step(StepKind.MAP, "m:longer"))
    assert apply({"tags": ["a"]}) == [{"tags": ["a", n], "n": n} for n in (1, 2)]


@pytest.mark.parametrize(
    ("value", "words"),
    [({"t": None}, "it must give a list"), ({"t": "ab"}, "gave 'ab'"), ({}, "no field 't'")],
)
def test_what_is_no_list_has_no_entries(value: Any, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        run(step(StepKind.FLAT_MAP, fields={"w": "t"}))(value)


def test_a_value_without_fields_gets_none() -> None:
    with pytest.raises(RecordError, match="adds a field, and a int has no fields"):
        run(step(StepKind.FLAT_MAP, fields={"w": "[1]"}))(1)


def test_a_step_is_told_as_it_is_written() -> None:
    assert step_text(step(StepKind.MAP, fields={"a": "x", "b": "y * 2"})) == "map {a: x, b: y * 2}"
    assert step_text(step(StepKind.FILTER, expression="x > 1")) == "filter x > 1"


@pytest.mark.parametrize(
    ("n", "first", "all_"),
    [
        (4, ["small"], ["small", "even"]),
        (12, ["even"], ["even"]),
        (3, ["small"], ["small"]),
        (13, ["rest"], ["rest"]),
    ],
)
def test_a_record_goes_to_the_first_that_fits_or_to_all_and_else_to_the_rest(
    n: int, first: Sequence[str], all_: Sequence[str]
) -> None:
    assert compile_branches(BRANCHES, match_all=False)({"n": n}) == first
    assert compile_branches(BRANCHES, match_all=True)({"n": n}) == all_


def test_what_no_branch_takes_goes_nowhere_without_a_rest() -> None:
    assert compile_branches(BRANCHES[:2], match_all=False)({"n": 13}) == []


def test_a_retraction_goes_the_way_of_the_record_that_it_takes_back() -> None:
    choose = compile_branches(BRANCHES, match_all=True)
    assert choose(Retraction({"n": 4})) == choose({"n": 4})


def test_a_value_that_a_condition_cannot_judge_is_the_records_error() -> None:
    with pytest.raises(RecordError, match="no field 'n'"):
        compile_branches(BRANCHES, match_all=False)({"m": 4})
    with pytest.raises(ValueError, match="column"):
        compile_branches([BranchSpec("x", "n <")], match_all=False)
