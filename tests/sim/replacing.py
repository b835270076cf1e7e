"""Something else in the place of a function, for as long as a context lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    """``owner.name`` is ``wrong`` meanwhile."""
    right = getattr(owner, name)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)
