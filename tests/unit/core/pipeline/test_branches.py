from __future__ import annotations

from collections.abc import Sequence

import pytest

from millwheel.core.pipeline.branches import compile_branches
from millwheel.core.pipeline.spec import BranchSpec
from millwheel.core.windows.panes import Retraction
from millwheel.errors import RecordError

BRANCHES = (BranchSpec("small", "n < 10"), BranchSpec("even", "n % 2 == 0"), BranchSpec("rest", ""))


@pytest.mark.parametrize(
    ("n", "first", "all_"),
    [(4, ["small"], ["small", "even"]), (12, ["even"], ["even"]), (3, ["small"], ["small"]), (13, ["rest"], ["rest"])],
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
