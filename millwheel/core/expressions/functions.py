"""The functions of expressions. Each is total, or raises an error that an expression turns into a
RecordError. The cost of each is bounded by the size of its arguments, unless
:attr:`Function.bounded` is false: clients of queries send expressions, too."""

from __future__ import annotations

from collections.abc import Mapping

from millwheel.core.expressions.declaration import Function
from millwheel.core.expressions.families import decimals, nulls, numbers, patterns, text, times

FAMILIES: Mapping[str, Mapping[str, Function]] = {
    "Text": text.FUNCTIONS,
    "Patterns": patterns.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Nulls, choices and types": nulls.FUNCTIONS,
    "Decimals": decimals.FUNCTIONS,
    "Time": times.FUNCTIONS,
}
"""The families, by their headings in the docs."""
FUNCTIONS: Mapping[str, Function] = {
    name: function for family in FAMILIES.values() for name, function in family.items()
}
