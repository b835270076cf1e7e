"""The YAML form of triggers says exactly what the Python form says, and errors name the place."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.windows.combinations import (
    AfterAll,
    AfterAny,
    AfterEach,
    Once,
    OrFinally,
    Repeat,
)
from millwheel.core.windows.trees import FORMS, trigger_from_tree, trigger_tree
from millwheel.core.windows.triggers import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterWatermark,
    Default,
    Never,
    Trigger,
)

TREES = [
    (None, Default()),
    ("default", Default()),
    ("never", Never()),
    ("after_watermark", AfterWatermark()),
    ({"after_watermark": None}, AfterWatermark()),
    ({"after_watermark": {"early": {"after_count": 2}}}, AfterWatermark(early=AfterCount(2))),
    (
        {
            "after_watermark": {
                "early": {"after_processing_time": "1m"},
                "late": {"after_count": 3},
            }
        },
        AfterWatermark(AfterProcessingTime("1m"), AfterCount(3)),
    ),
    ({"after_count": 5}, AfterCount(5)),
    ({"after_bytes": 1000}, AfterBytes(1000)),
    ("after_processing_time", AfterProcessingTime()),
    (
        {"after_processing_time": {"delay": "5s", "align": "1m"}},
        AfterProcessingTime("5s", "1m"),
    ),
    ({"after_percentile_watermark": 0.95}, AfterPercentileWatermark(0.95)),
    ({"repeat": {"after_count": 5}}, Repeat(AfterCount(5))),
    ({"once": "after_watermark"}, Once(AfterWatermark())),
    ({"any": [{"after_count": 1}, "never"]}, AfterAny(AfterCount(1), Never())),
    ({"all": [{"after_count": 1}, "never"]}, AfterAll(AfterCount(1), Never())),
    ({"each": [{"after_count": 1}, "never"]}, AfterEach(AfterCount(1), Never())),
    (
        {"or_finally": {"main": "never", "until": {"after_count": 1}}},
        OrFinally(Never(), AfterCount(1)),
    ),
]


@pytest.mark.parametrize(("tree", "trigger"), TREES)
def test_a_tree_and_its_trigger(tree: Any, trigger: Trigger) -> None:
    assert trigger_from_tree(tree) == trigger


def test_a_trigger_is_the_same_after_it_was_written_and_read() -> None:
    for _, trigger in TREES:
        assert trigger_from_tree(trigger_tree(trigger, str)) == trigger
    assert {type(trigger) for _, trigger in TREES} == {form.kind for form in FORMS.values()}
    assert trigger_tree(AfterWatermark(), str) == "after_watermark"
    assert trigger_tree(Repeat(Mine()), lambda own: "mine:Mine") == {
        "repeat": {"custom": "mine:Mine"}
    }


class Mine(Trigger):
    def __init__(self, limit: int = 1) -> None:
        self.limit = limit


def test_a_custom_trigger_is_loaded_and_made_with_its_settings() -> None:
    made = trigger_from_tree(
        {"custom": {"class": "my:Mine", "with": {"limit": 7}}}, lambda name: Mine
    )
    assert isinstance(made, Mine)
    assert made.limit == 7
    assert isinstance(trigger_from_tree({"custom": "my:Mine"}, lambda name: Mine), Mine)


def test_a_tree_can_be_checked_without_loading_anything() -> None:
    assert trigger_from_tree({"repeat": {"custom": "my:Mine"}}, lambda name: name)


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        (
            "after_lunch",
            "trigger: unknown trigger 'after_lunch'; there are after_bytes, after_count",
        ),
        (5, "trigger: is one trigger: a name, or a map with one name"),
        ({"after_count": 1, "never": None}, "is one trigger"),
        ({"after_count": "five"}, "trigger.after_count: AfterCount needs a whole number"),
        ({"after_count": None}, "trigger.after_count: AfterCount needs"),
        (
            {"after_watermark": {"earl": 1}},
            "trigger.after_watermark: has no field 'earl'; it has early, late",
        ),
        ({"after_watermark": 5}, "trigger.after_watermark: must be a map"),
        (
            {"after_watermark": {"late": {"after_count": 0}}},
            "trigger.after_watermark.late.after_count: AfterCount",
        ),
        ("aftr_count", "unknown trigger 'aftr_count'; did you mean 'after_count'[?] There are"),
        (
            {"after_processing_time": "soon"},
            "trigger.after_processing_time: 'soon' is not a duration",
        ),
        ({"repeat": None}, "trigger.repeat: is one trigger"),
        ({"any": {"after_count": 1}}, "trigger.any: needs a list of triggers"),
        ({"any": []}, "trigger.any: needs a list"),
        ({"any": ["never", {"repeat": "nevr"}]}, r"trigger.any.1.repeat: unknown trigger 'nevr'"),
        ({"or_finally": {"main": "never"}}, "trigger.or_finally: needs both"),
        ({"custom": {"with": {}}}, "trigger.custom: needs the class"),
        ({"custom": "my:Mine"}, "trigger.custom: needs the class"),
    ],
)
def test_an_error_names_the_place_and_the_fix(tree: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        trigger_from_tree(tree)


def test_a_custom_class_that_is_no_trigger_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"my:Mine is not a trigger; derive it from millwheel\.Trigger"
    ):
        trigger_from_tree({"custom": "my:Mine"}, lambda name: dict)
