"""Polars, loaded when it is first used: loading takes a tenth of a second of CPU, and most
processes never need it.

A process that forks must not have loaded it at all: the library starts a thread when it is loaded,
and a child process would lack that thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["dtype", "kind_of", "pl"]

if TYPE_CHECKING:
    import polars as pl
else:

    class _Late:
        """Names of Polars, each looked up there once. Any thread: one loads it while the others
        wait."""

        def __getattr__(self, name: str) -> Any:
            import polars

            attribute = getattr(polars, name)
            setattr(self, name, attribute)
            return attribute

    pl = _Late()


def dtype(kind: str) -> Any:
    """The Polars type of a declared field."""
    return _dtypes()[kind]


def kind_of(polars_type: Any) -> str:
    """The inverse of :func:`dtype`; "" for other types."""
    return next((kind for kind, candidate in _dtypes().items() if polars_type == candidate), "")


def _dtypes() -> dict[str, Any]:
    return {"int": pl.Int64, "float": pl.Float64, "str": pl.String, "bool": pl.Boolean}
