"""What clients can write costs a bounded time: every function and operator that they have is called
with extreme arguments. A new one is in the tables, so it cannot escape."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from time import process_time
from typing import Any

import pytest

from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.language import MAX_LENGTH, compile_expression, compile_foreign
from millwheel.core.expressions.nodes import _ARITHMETIC, _UNARY, COMPARISONS, RUNTIME_ERRORS
from millwheel.core.expressions.operators import MAX_TEXT
from millwheel.errors import RecordError
from tests.unit.core.expressions.test_functions import call

LIMIT_S = 0.1
"""Of one call: a bounded one takes a millisecond or two."""
PATIENCE_S = 20.0
"""For one call; then it counts as endless."""
LONG = "a" * MAX_TEXT
NESTED: Any = "'\\\""
for _ in range(40):
    NESTED = [NESTED, NESTED]  # 2**40 texts, if anybody writes them down
EXTREME = (
    None, True, 0, -1, 7, 10**9, -(10**9), 2**63, -(2**63), 10**4_000, 2**14_000 - 1,
    0.0, 1e308, -1e308, 5e-324, float("inf"), float("nan"), "", "1", LONG, LONG + "b",
    "9" * MAX_TEXT, "a" * 40 + "b",
    "(a+)+$", "\\" * 1_000, "\N{LATIN SMALL LIGATURE FFI}" * MAX_TEXT, b"a" * MAX_TEXT, [],
    [LONG] * 5_000,
    list(range(MAX_TEXT)), {"a": LONG}, tuple("ab" * 5_000),
)  # fmt: skip
OF_THREE = (
    None, 0, -1, 10**9, -(2**63), 2**14_000 - 1, 1e308, float("nan"), "", "a", LONG, LONG + "b",
    "%" + "a" * 98 + "_" + "a" * 99, "1h", "Europe/Paris", [LONG] * 5_000,
)  # fmt: skip
"""Three arguments are taken from fewer values, so that the test ends in time."""
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def calls() -> Iterator[Call]:
    for name, function in FUNCTIONS.items():
        if function.bounded:
            for count in {function.least, min(function.most, 2), min(function.most, 3)}:
                values = EXTREME if count < 3 else OF_THREE
                yield from (
                    (name, partial(call, function), (given,))
                    for given in product(values, repeat=count)
                )
    for kind, act in {**_ARITHMETIC, **COMPARISONS}.items():
        yield from ((kind.__name__, act, given) for given in product(EXTREME, repeat=2))
    for kind, only in _UNARY.items():
        yield from ((kind.__name__, only, (given,)) for given in EXTREME)
    yield from ((name, FUNCTIONS[name].act, (NESTED,)) for name in ("str", "len", "int", "float"))


def _place(value: Any) -> int:
    return next((at for at, known in enumerate(EXTREME + OF_THREE) if known is value), -1)


def _sweep(told: Connection) -> None:
    slow = []
    for name, act, given in calls():
        # By their numbers in the table: some of them cannot be shown.
        values = given[0] if isinstance(given[0], tuple) and name in FUNCTIONS else given
        shown = f"{name}{[_place(each) for each in values]}"
        told.send(shown)
        began_s = process_time()
        with contextlib.suppress(RUNTIME_ERRORS):
            act(*given)
        if process_time() - began_s > LIMIT_S:
            slow.append(shown)
    told.send(slow)


def test_no_function_or_operator_that_clients_have_takes_long() -> None:
    """In a process of its own: an endless call can only be killed."""
    here, there = multiprocessing.Pipe(duplex=False)
    sweeping = multiprocessing.get_context("fork").Process(
        target=_sweep, args=(there,), daemon=True
    )
    sweeping.start()
    there.close()
    last: Any = "nothing"
    while isinstance(last, str):
        if not here.poll(PATIENCE_S):
            sweeping.kill()
            pytest.fail(f"{last} does not end")
        last = here.recv()
    sweeping.join(PATIENCE_S)
    assert not last


@pytest.mark.parametrize(
    "text",
    [
        "round(1, -1000000000) + n",
        "round(n, 10 ** 9)",
        "str([" * 90 + "'\"'" + "])" * 90 + " == n",
        "'a' * 99999 * ('b' * 99999) == n",
        "[1] * 99999 == n",
        "2 ** 4096 * 2 ** 4096 * 2 ** 4096 * 2 ** 4096 * 2 ** 4096 + n",
        "int('9' * 99999) + n",
        "n + " + "*".join(["2**4096"] * 200),
        "n + " + "9" * 1_990,
        "9 ** 9 ** 9 ** 9 + n",
        "min(" + ",".join("n" * 100) + ")",
        "decimal_units([" + ",".join(["'a' * 99999"] * 90) + "] * 90, 12, 2)",
        "lower(" * 190 + "n" + ")" * 190,
        "a" * MAX_LENGTH + "(n)",
        "'" * MAX_LENGTH,
        "n" + " == n" * 300,
        "(" * 199 + "n" + ")" * 199,
    ],
)
def test_no_formula_takes_long_to_compile_or_to_compute(text: str) -> None:
    began_s = process_time()
    with contextlib.suppress(ValueError, RecordError):
        compile_foreign(text).evaluate({"n": 10**15})
    assert process_time() - began_s < 1.0


def test_patterns_are_for_pipelines_and_named_queries() -> None:
    assert compile_expression("matches(name, '^a')").evaluate({"name": "ab"})
    with pytest.raises(ValueError, match="only a named query has it"):
        compile_foreign("matches(name, '^a')")
    with pytest.raises(ValueError, match="only a named query has it"):
        compile_foreign("1 if matches('aaaa', '(a+)+$') else n")
