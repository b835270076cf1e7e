from __future__ import annotations

from millwheel.language.spec.reading.nodes import ForeignLine
from millwheel.language.spec.reading.problems import MAX_SHOWN, Problems, did_you_mean, unknown


def test_all_problems_are_told_by_line_each_once() -> None:
    problems = Problems("p.yaml")
    problems.add(9, "b", "second")
    problems.add(2, "a", "first")
    problems.add(2, "a", "what follows from the first")
    problems.add(3, "", "of the file")
    problems.add(3, "", "of the file")
    assert problems.error().problems == (
        "p.yaml:2: a: first",
        "p.yaml:3: of the file",
        "p.yaml:9: b: second",
    )


def test_a_value_is_concerned_by_problems_below_it_and_not_by_those_beside_it() -> None:
    problems = Problems("p.yaml")
    problems.add(1, "streams.hits[0].id", "wrong")
    assert [
        problems.concerns(path)
        for path in ("streams", "streams.hits", "streams.hits[0]", "streams.hit")
    ] == [
        True,
        True,
        True,
        False,
    ]


def test_too_many_are_counted() -> None:
    problems = Problems("p.yaml")
    for number in range(MAX_SHOWN + 7):
        problems.add(number, f"f{number}", "wrong")
    shown = problems.error().problems
    assert len(shown) == MAX_SHOWN + 1
    assert shown[-1] == "p.yaml: … and 7 more problems"


def test_a_line_of_another_file_is_told_with_that_file() -> None:
    assert Problems("p.py").at(ForeignLine(4, "other.py")) == "other.py:4"


def test_a_name_that_is_nearly_known_is_guessed_and_others_are_not() -> None:
    assert did_you_mean("summ", ["sum", "mean"]) == "; did you mean 'sum'?"
    assert did_you_mean("SUM", ["sum"]) == "; did you mean 'sum'?"
    assert did_you_mean("xyz", ["sum"]) == ""
    assert unknown("function", "xyz", []) == "unknown function 'xyz'. Known: none"
