"""What columns may hold before anything is computed over them."""

from __future__ import annotations

import polars as pl
import pytest

from millwheel.core.columns.clean import clean_rows, is_clean, is_pattern

FRAME = pl.DataFrame({"cost": [1.0, 2.0], "kind": ["a", None], "n": [1, 2]})


@pytest.mark.parametrize(
    ("frame", "kinds", "clean"),
    [
        (FRAME, {"cost": "float", "n": "int"}, [True, True]),
        (FRAME, {"kind": "str"}, [True, False]),
        (FRAME, {"kind": ""}, [True, False]),
        (FRAME, {"n": "float"}, None),
        (FRAME, {"other": "int"}, None),
        (
            pl.DataFrame({"cost": [1.0, float("nan"), float("inf"), None, -0.0]}),
            {"cost": "float"},
            [1, 0, 0, 0, 1],
        ),
        (pl.DataFrame({"clicks": [None, {"w": None}]}), {"clicks": ""}, [False, True]),
        (pl.DataFrame({"none": [None]}), {"none": "int"}, None),
    ],
)
def test_a_hole_no_number_and_another_type_are_not_clean(
    frame: pl.DataFrame, kinds: dict[str, str], clean: list[bool] | None
) -> None:
    found = clean_rows(frame, kinds)
    assert (None if found is None else found.tolist()) == clean
    assert is_clean(frame, kinds) == (clean is not None and all(clean))


def test_names_that_polars_takes_for_patterns_are_known() -> None:
    assert [name for name in ("*", "^a.*$", "a*", "^a", "a$", "") if is_pattern(name)] == [
        "*",
        "^a.*$",
    ]
    assert pl.DataFrame({"*": [1], "b": [2]}).select("*").width == 2
