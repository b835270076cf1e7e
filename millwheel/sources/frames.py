"""Records as columns: polars frames of the declared fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from millwheel.core.columns.lazy_polars import dtype, pl
from millwheel.sources.fields import column_of

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_ROW_TYPES: dict[str, Any] = {"int": _INT64 | None, "float": float | None, "str": str | None, "bool": bool | None}


def row_type(fields: Mapping[str, str], exact: Collection[str] = (), whole: bool = False) -> type[msgspec.Struct]:
    """A type into which msgspec decodes only the declared fields; it refuses values of other types.

    Attributes are named ``f0``, ``f1``, …, since a field may have any name. ``exact``: in these fields a whole number
    stays an int, also where floats are expected; see :func:`are_exact`. ``whole``: it refuses values with other fields.
    """
    types = [
        float | int | None if kind == "float" and name in exact else _ROW_TYPES[kind] for name, kind in fields.items()
    ]
    members = [(f"f{index}", kind, None) for index, kind in enumerate(types)]
    names = {f"f{index}": name for index, name in enumerate(fields)}
    return msgspec.defstruct("Row", members, rename=names, gc=False, forbid_unknown_fields=whole)


def are_exact(values: Sequence[Any], fields: Mapping[str, str], exact: Collection[str]) -> bool:
    """Whether each float of the exact fields was written as one."""
    floats = (index for index, (name, kind) in enumerate(fields.items()) if kind == "float" and name in exact)
    return all(set(map(type, _attribute(index, values))) <= {float} for index in floats)


def frame_of(values: Sequence[Any], fields: Mapping[str, str]) -> pl.DataFrame:
    """The declared fields of values, which are dicts or of :func:`row_type`."""
    if values and type(values[0]) is dict:
        columns = [column_of(name, list(values)) for name in fields]
    else:
        columns = [_attribute(index, values) for index in range(len(fields))]
    kinds = zip(fields.items(), columns, strict=True)
    return pl.DataFrame([pl.Series(name, column, dtype(kind)) for (name, kind), column in kinds])


def frames_of(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Several frames as one."""
    return frames[0] if len(frames) == 1 else pl.concat(frames, rechunk=True)


_EXAMPLE_VALUES = 5_000  # distinct numbers of an example that warms the columns


def example_frame(fields: Mapping[str, str], rows: int) -> pl.DataFrame:
    """Made-up records with a few thousand different values of each declared field."""
    numbers = pl.int_range(rows, eager=True) % _EXAMPLE_VALUES
    return pl.DataFrame([numbers.cast(dtype(kind)).alias(name) for name, kind in fields.items()])


_FIRST: tuple[Callable[[Sequence[Any]], list[Any]], ...] = (
    lambda rows: [row.f0 for row in rows],
    lambda rows: [row.f1 for row in rows],
    lambda rows: [row.f2 for row in rows],
    lambda rows: [row.f3 for row in rows],
    lambda rows: [row.f4 for row in rows],
    lambda rows: [row.f5 for row in rows],
    lambda rows: [row.f6 for row in rows],
    lambda rows: [row.f7 for row in rows],
    lambda rows: [row.f8 for row in rows],
    lambda rows: [row.f9 for row in rows],
)
"""Written-out attribute access takes half the time of ``attrgetter``; it is a tenth of the cost of a frame."""


def _attribute(index: int, rows: Sequence[Any]) -> list[Any]:
    return _FIRST[index](rows) if index < len(_FIRST) else list(map(attrgetter(f"f{index}"), rows))
