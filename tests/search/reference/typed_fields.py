"""Fields that are times and decimals, read and shown by other means than the product's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

from millwheel.core.pipeline.spec import StreamSpec

_YEARS = 2**62


class Unusable(Exception):
    """A record from outside that is none, with the reason."""


def read_typed(value: dict[str, Any], spec: StreamSpec) -> None:
    """Makes times µs, and decimals whole numbers of their last digit."""
    for name, kind in spec.times.items():
        if value.get(name) is not None:
            value[name] = microseconds(value[name], 1_000 if " ms " in kind else 1)
    for name, kind in spec.decimals.items():
        if value.get(name) is not None:
            value[name] = _units(value[name], *map(int, re.findall("[0-9]+", kind)))


def _units(given: Any, digits: int, behind: int) -> int:
    if type(given) not in (int, str):
        raise Unusable(f"{given!r} is not a decimal")
    try:
        units = Decimal(given) * 10**behind
        whole = int(units)
    except (InvalidOperation, ValueError, OverflowError) as ex:
        raise Unusable(f"{given!r} is not a number") from ex
    if whole != units or abs(whole) >= 10**digits:
        raise Unusable(f"{given!r} has more digits")
    return whole


def as_shown(value: Any, scales: Any) -> Any:
    """What a sink gets of a value of a stream."""
    if isinstance(scales, int):
        return value if value is None else Decimal(value).scaleb(-scales)
    if isinstance(scales, list):
        return value if value is None else [as_shown(each, scales[0]) for each in value]
    if isinstance(value, Mapping) and isinstance(scales, Mapping):
        return {name: as_shown(each, scales.get(name, {})) for name, each in value.items()}
    return value


def microseconds(given: Any, unit: int) -> int:
    """A time of a unit of so many µs, or ISO 8601 text, as µs."""
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given.replace("Z", "+00:00"))
        except ValueError as ex:
            raise Unusable(f"the timestamp {given!r} is neither a number nor ISO 8601 text") from ex
    if isinstance(given, datetime):
        return round(
            (given if given.tzinfo else given.replace(tzinfo=timezone.utc)).timestamp() * 1_000_000
        )
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        raise Unusable(f"the timestamp {given!r} is neither a number nor ISO 8601 text")
    if not -_YEARS < given * unit < _YEARS:
        raise Unusable(
            f"the timestamp {given!r} is outside the supported range of times; check the unit"
        )
    return round(given * unit)
