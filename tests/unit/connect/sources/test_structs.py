from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from millwheel.connect.sources.structs import Structs


class Order(msgspec.Struct):
    who: str
    worth: int
    note: str | None = None


COLUMNS: dict[str, Any] = {"who": ["ann", "bob"], "worth": [1, 2], "note": ["x", None]}


def made(schema: type = Order, **more: Any) -> list[Any] | None:
    columns = {
        name: pa.array(values) for name, values in {**COLUMNS, **more}.items() if values is not None
    }
    return Structs(schema, lambda column: column.to_pylist()).of(columns)


def test_columns_of_the_right_types_become_objects() -> None:
    assert made() == [Order("ann", 1, "x"), Order("bob", 2)]


@pytest.mark.parametrize(
    "more",
    [
        {"worth": None},
        {"worth": [1.0, 2.0]},
        {"worth": [True, False]},
        {"who": ["ann", None]},
        {"who": [1, 2]},
    ],
    ids=["missing", "float", "bool", "null", "number"],
)
def test_columns_that_do_not_fit_are_looked_at_row_by_row(more: dict[str, Any]) -> None:
    assert made(**more) is None


def test_a_renamed_field_is_read_by_its_name_outside() -> None:
    class Renamed(msgspec.Struct, rename={"worth": "price"}):
        worth: int

    assert made(Renamed, price=[5, 6]) == [Renamed(5), Renamed(6)]


@pytest.mark.parametrize(
    "config",
    [{"array_like": True}, {"tag": True}, {"forbid_unknown_fields": True}, {"kw_only": True}],
)
def test_classes_whose_conversion_does_more_are_left_to_it(config: dict[str, Any]) -> None:
    assert made(msgspec.defstruct("Odd", [("worth", int)], **config)) is None


def test_a_class_that_refuses_a_row_is_asked_row_by_row() -> None:
    class Picky(msgspec.Struct):
        worth: int

        def __post_init__(self) -> None:
            if self.worth > 1:
                raise ValueError("too much")

    assert made(Picky) is None
