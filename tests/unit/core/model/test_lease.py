"""The fence: which tokens count, and that nobody compares them by hand."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from millwheel.core.model.lease import Lease, Leases
from tests import rooms

OWNER = "core/model/lease.py"


@pytest.mark.parametrize(
    ("token", "admitted", "former", "later"),
    [(6, False, True, False), (7, True, False, False), (8, False, False, True)],
)
def test_only_the_token_of_the_owner_is_admitted(
    token: int, admitted: bool, former: bool, later: bool
) -> None:
    lease = Lease(7)
    assert (lease.admits(token), lease.outlived(token), lease.is_behind(token)) == (
        admitted,
        former,
        later,
    )


def test_many_leases_judge_as_each_of_them() -> None:
    known, tokens = np.array([3, 3, 3, 9]), np.array([2, 3, 4, 9])
    each = [Lease(mine) for mine in known.tolist()]
    assert Leases(known).admit(tokens).tolist() == [
        one.admits(t) for one, t in zip(each, tokens, strict=True)
    ]
    assert Leases(known).are_behind(tokens).tolist() == [
        one.is_behind(t) for one, t in zip(each, tokens, strict=True)
    ]


def test_tokens_are_compared_in_one_module_only() -> None:
    found = [
        f"{name}:{compare.lineno} {ast.unparse(compare)}"
        for name, path in rooms.modules().items()
        if not path.as_posix().endswith(OWNER) and ".token" in (text := path.read_text("utf-8"))
        for compare in ast.walk(ast.parse(text))
        if isinstance(compare, ast.Compare) and _compares_tokens(compare.left, *compare.comparators)
    ]
    assert not found


def _compares_tokens(*sides: ast.expr) -> bool:
    return any(map(_is_token, sides)) and "_NO_TOKEN" not in map(ast.unparse, sides)


def _is_token(node: ast.expr) -> bool:
    """``x.token``, ``x.tokens[i]``: an attribute of that name. Local names may be other things (of
    a parser)."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(node, ast.Attribute) and node.attr in (
        "token",
        "tokens",
        "target_token",
        "_token",
    )
