"""The row form of expressions with the nulls of SQL: a result with a null operand is null, and a
truth may be unknown, which is null, too."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

Evaluate = Callable[[Any], Any]


def strict(act: Callable[..., Any], parts: Sequence[Evaluate]) -> Evaluate:
    """``act`` of the values of all parts, null where one is. Each part is computed, so an error of
    any is one of the whole."""
    if len(parts) == 1:
        return partial(_strict_1, act, parts[0])
    if len(parts) == 2:
        return partial(_strict_2, act, *parts)

    def run(value: Any) -> Any:
        values = [part(value) for part in parts]
        return None if any(each is None for each in values) else act(*values)

    return run


def _strict_1(act: Callable[..., Any], part: Evaluate, value: Any) -> Any:
    argument = part(value)
    return None if argument is None else act(argument)


def _strict_2(act: Callable[..., Any], left: Evaluate, right: Evaluate, value: Any) -> Any:
    one, other = left(value), right(value)
    return None if one is None or other is None else act(one, other)


def strict_first(act: Callable[..., Any], parts: Sequence[Evaluate]) -> Evaluate:
    """``act`` of the values of all parts, null where the first is."""

    def run(value: Any) -> Any:
        first, *others = [part(value) for part in parts]
        return None if first is None else act(first, *others)

    return run


def combined(parts: Sequence[Evaluate], decides: bool) -> Evaluate:
    """``and`` (False ``decides`` it), ``or`` (True does). Parts behind one that decides are not
    computed."""

    def run(value: Any) -> bool | None:
        result: bool | None = not decides
        for part in parts:
            truth = part(value)
            if truth is None:
                result = None
            elif bool(truth) is decides:
                return decides
        return result

    return run


def within(left: Any, right: Any) -> bool | None:
    """``left in right``: unknown where it is not there, and might be one of the nulls."""
    if left in right:
        return True
    return None if isinstance(right, (list, tuple)) and None in right else False


def not_within(left: Any, right: Any) -> bool | None:
    """``left not in right``."""
    is_within = within(left, right)
    return None if is_within is None else not is_within


def compared(first: Evaluate, steps: Sequence[tuple[Callable[..., Any], Evaluate]]) -> Evaluate:
    """Comparisons of neighbours; those behind a false one are not made. Each of ``steps`` takes a
    value and the next one, nulls included."""

    def run(value: Any) -> bool | None:
        left, unknown = first(value), False
        for act, part in steps:
            right = part(value)
            truth = act(left, right)
            if truth is None:
                unknown = True
            elif not truth:
                return False
            left = right
        return None if unknown else True

    return run


def null_aware(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison that is unknown where a side is null."""

    def run(left: Any, right: Any) -> Any:
        return None if left is None or right is None else act(left, right)

    return run


def is_null(tree: ast.expr) -> bool:
    """Whether an expression is null as it is written."""
    return (isinstance(tree, ast.Constant) and tree.value is None) or (
        isinstance(tree, ast.Name) and tree.id == "null"
    )


class _Plainly(ast.NodeTransformer):
    """Replaces functions by the operators that they stand for, which handle unknown truths."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.keywords:
            return node
        if node.func.id == "between" and len(node.args) == 3:
            value, low, high = node.args
            made = ast.Compare(low, [ast.LtE(), ast.LtE()], [value, high])
        elif node.func.id == "contains" and len(node.args) == 2:
            whole, part = node.args
            made = ast.Compare(part, [ast.In()], [whole])
        else:
            return node
        return ast.copy_location(made, node)


def plainly(tree: ast.expr) -> ast.expr:
    """The expression without functions that are another way to write an operator."""
    made: ast.expr = _Plainly().visit(tree)
    return made
