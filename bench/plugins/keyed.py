"""A key by code of one's own, for which a source reads records one by one."""

from __future__ import annotations

from typing import Any


def by_k(value: dict[str, Any]) -> int:
    """The field ``k``."""
    return int(value["k"])
