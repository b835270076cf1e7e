"""Something else in the place of a function, for as long as a context lasts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

_OWN = (TypeError, AttributeError, NameError)
"""What a mistake raises that no longer fits the code, and not on purpose."""


@contextmanager
def replaced(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """``owner.name`` is ``wrong`` meanwhile. A mistake that fails by itself, because the code has
    changed around it, would seem to be caught: it is an error at the end."""
    right, broken = getattr(owner, name), list[BaseException]()
    plain = isinstance(wrong, FunctionType) and not inspect.isgeneratorfunction(wrong)
    setattr(owner, name, _watched(wrong, broken) if plain else wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)
    if broken:
        raise AssertionError(
            f"the replacement of {name} does not fit the code any more"
        ) from broken[0]


def _watched(wrong: FunctionType, broken: list[BaseException]) -> Any:
    @functools.wraps(wrong)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return wrong(*args, **more)
        except _OWN as ex:
            trace = ex.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None and trace.tb_frame.f_code in (wrong.__code__, call.__code__):
                broken.append(ex)
            raise

    return call
