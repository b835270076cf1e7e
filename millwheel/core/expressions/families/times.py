"""Functions of time. A time is a whole number of µs since 1970 UTC, or ISO 8601 text. Without a
zone all is UTC and arithmetic, for all years; with one it is by the clocks of that zone, for the
years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from millwheel.core.expressions.declaration import Function, table
from millwheel.core.expressions.families.text import text_of
from millwheel.core.expressions.terms import (
    SAFE_INT,
    NoColumns,
    Term,
    by_numpy,
    by_steps,
    constant_of,
    kinds,
    number_term,
)
from millwheel.core.instants import calendar, formats
from millwheel.core.instants.local import months_start, offset_us, shown, wall_start, zone_of
from millwheel.core.instants.numbers import DAY_US, number_us
from millwheel.core.instants.text_columns import texts_us
from millwheel.core.instants.texts import iso_text, text_us
from millwheel.core.lazy_polars import pl
from millwheel.core.model.times import SECOND, duration_us
from millwheel.core.windows.zones import Days
from millwheel.errors import RecordError

_MONTHS = {"month": 1, "quarter": 3, "year": 12}  # Fixed: months of a unit
_MONDAY_US = 4 * DAY_US  # Fixed: the first Monday after 1970 began
_WEEK_DAYS = 7  # Fixed
_UNITS_US = {"s": SECOND, "ms": 1_000, "us": 1}  # Fixed: µs of a unit


def time_of(value: Any) -> int:
    """The µs of a time. Raises ValueError for other text, TypeError for other types."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        return _parsed(value)
    shown_type = "null" if value is None else type(value).__name__
    raise TypeError(f"needs a time, whole µs or ISO 8601 text, not {shown_type}")


def _parsed(text: str) -> int:
    try:
        return text_us(text)
    except RecordError as ex:
        raise ValueError(str(ex)) from None


def _wall(time: Any, zone: Any) -> int:
    """The time that clocks show: µs since their 1970."""
    moment = time_of(time)
    return moment if zone is None else moment + offset_us(moment, zone_of(text_of(zone)))


@lru_cache(maxsize=256)
def _length(unit: str) -> int:
    """The µs of a duration."""
    length_us = duration_us(unit) if len(unit) < 40 else 0  # characters: no duration needs more
    if length_us <= 0:
        raise ValueError("it is not a duration such as 15m, 1h or 1d")
    return length_us


def _unit(unit: str) -> None:
    if unit != "week" and unit not in _MONTHS:
        _length(unit)


def _unit_us(unit: Any) -> int:
    unit_us = _UNITS_US.get(unit) if isinstance(unit, str) else None
    if unit_us is None:
        raise ValueError(f"a unit is one of {', '.join(_UNITS_US)}")
    return unit_us


@lru_cache(maxsize=256)
def _days(zone: str, count: int, offset: int) -> Days:
    return Days(zone, count, offset)


def _trunc(time: Any, unit: Any, zone: Any = None) -> int:
    moment, unit = time_of(time), text_of(unit)
    _unit(unit)
    if zone is None:
        return int(_start(moment, unit))
    clocks = zone_of(text_of(zone))
    if unit in _MONTHS:
        return months_start(moment, _MONTHS[unit], clocks)
    length = _WEEK_DAYS * DAY_US if unit == "week" else _length(unit)
    if length % DAY_US:
        return wall_start(moment, length, clocks)
    offset_us(moment, clocks)  # refuses what lies outside of the years 1 to 9999
    try:
        offset = _MONDAY_US if unit == "week" else 0
        return _days(zone, length // DAY_US, offset).bounds(moment)[0]
    except RecordError as ex:
        raise ValueError(str(ex)) from None


def _start(moment: Any, unit: str) -> Any:
    """The start of the unit that a time, or each time of an array, lies in."""
    if unit in _MONTHS:
        return calendar.month_start(calendar.days_in(moment), _MONTHS[unit]) * DAY_US
    if unit == "week":
        return moment - (moment - _MONDAY_US) % (_WEEK_DAYS * DAY_US)
    return moment - moment % _length(unit)


def _difference(start: Any, end: Any, unit: Any) -> int:
    span, length = time_of(end) - time_of(start), _length(text_of(unit))
    return span // length if span >= 0 else -(-span // length)


def _from_number(number: Any, unit: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"needs a number, not {type(number).__name__}")
    try:
        return number_us(number, _unit_us(unit))
    except RecordError as ex:
        raise ValueError(str(ex)) from None


def _format(time: Any, form: Any, zone: Any = None) -> str:
    moment = time_of(time)
    wall = _wall(moment, zone)
    return formats.formatted(wall, wall - moment, text_of(form))


def _parse(text: Any, form: Any = None, zone: Any = None) -> int:
    if form is None:
        return _parsed(text_of(text))
    wall, offset = formats.parsed(text_of(text), text_of(form))
    if offset is not None:
        return wall - offset
    return wall if zone is None else shown(wall, zone_of(text_of(zone)))


def _iso(time: Any, zone: Any = None) -> str:
    moment = time_of(time)
    return iso_text(moment, _wall(moment, zone) - moment)


def _of_day(unit_us: int, count: int) -> Callable[[Any], Any]:
    return lambda wall: wall // unit_us % count


def _of_date(number: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda wall: number(calendar.days_in(wall))


def _field(
    name: str, description: str, example: tuple[str, int], of: Callable[[Any], Any]
) -> Function:
    """A field of the time that clocks show; ``of`` reads it from a time, or an array of times."""

    def columns(terms: Sequence[Term]) -> Term:
        kinds(terms, "int")
        return Term(by_numpy(of, [terms[0].column], "int"), "int", exact=terms[0].exact)

    return Function(
        f"{name}(time: time, zone?: text) -> int",
        lambda time, zone=None: of(_wall(time, zone)),
        description,
        (example,),
        checks={"time": time_of, "zone": zone_of},
        columns=columns,
    )


def _from_number_columns(terms: Sequence[Term]) -> Term:
    kinds(terms, "int", "str")
    try:
        unit_us = _unit_us(constant_of(terms[1]))
    except ValueError:
        raise NoColumns from None
    fits = (terms[0].double * unit_us).abs() < SAFE_INT
    return Term(terms[0].column * unit_us, "int", exact=(*terms[0].exact, fits))


def _trunc_columns(terms: Sequence[Term]) -> Term:
    kinds(terms, "int", "str")
    unit = constant_of(terms[1])
    try:
        _unit(unit)
    except ValueError:
        raise NoColumns from None
    fits = terms[0].double.abs() < SAFE_INT
    column = by_numpy(lambda moment: _start(moment, unit), [terms[0].column], "int")
    return Term(column, "int", exact=(*terms[0].exact, fits))


def _format_columns(terms: Sequence[Term]) -> Term:
    """Texts by columns, without a zone. Records come close together, so they share few texts."""
    kinds(terms, "int", "str")
    form = constant_of(terms[1])
    try:
        step_us = formats.resolution_us(form)
    except ValueError:
        raise NoColumns from None

    def formatted(moments: Sequence[int]) -> list[str]:
        return [formats.formatted(moment, 0, form) for moment in moments]

    fits = terms[0].double.abs() < SAFE_INT
    column = by_steps(formatted, terms[0].column, step_us, "str")
    return Term(column, "str", exact=(*terms[0].exact, fits))


def _iso_columns(terms: Sequence[Term]) -> Term:
    """ISO texts by columns, without a zone: a text is made once for each second."""
    kinds(terms, "int")

    def formatted(moments: Sequence[int]) -> list[str]:
        return [formats.formatted(moment, 0, "%Y-%m-%dT%H:%M:%S") for moment in moments]

    fits = terms[0].double.abs() < SAFE_INT
    seconds = by_steps(formatted, terms[0].column, SECOND, "str")
    rest = by_numpy(lambda moment: moment % SECOND, [terms[0].column], "int")
    digits = pl.concat_str(pl.lit("."), rest.cast(pl.String).str.zfill(6))
    fraction = pl.when(rest == 0).then(pl.lit("")).otherwise(digits)
    column = pl.concat_str(seconds, fraction, pl.lit("Z"))
    return Term(column, "str", exact=(*terms[0].exact, fits))


def _parse_columns(terms: Sequence[Term]) -> Term:
    """Times by columns: a constant is one number; texts of ISO 8601 are read together."""
    if all(term.constant is not None for term in terms):
        return number_term(_parse(*[term.constant for term in terms]))
    kinds([terms[0]], "str")
    others = [constant_of(term) for term in terms[1:]]

    def alone(text: str) -> int | None:
        try:
            return _parse(text, *others)
        except ValueError:
            return None

    def run(texts: pl.Series) -> pl.Series:
        numbers = None if others or texts.null_count() else texts_us(texts.to_list() or [""])
        if numbers is not None:
            return pl.Series(texts.name, numbers)
        times = [None if text is None else alone(text) for text in texts.to_list()]
        return pl.Series(texts.name, times, pl.Int64)

    column = terms[0].column.map_batches(run, pl.Int64, is_elementwise=True)
    return Term(column, "int", exact=(*terms[0].exact, column.is_not_null()))


def _duration_columns(terms: Sequence[Term]) -> Term:
    return number_term(_length(constant_of(terms[0])))


_AT = "'2026-03-29T12:34:56.789Z'"

FUNCTIONS = table(
    _field(
        "year", "the year", (f"year({_AT})", 2026), _of_date(lambda day: calendar.civil(day)[0])
    ),
    _field(
        "quarter",
        "the quarter, from 1",
        (f"quarter({_AT})", 1),
        _of_date(lambda day: (calendar.civil(day)[1] + 2) // 3),
    ),
    _field(
        "month",
        "the month, from 1",
        (f"month({_AT})", 3),
        _of_date(lambda day: calendar.civil(day)[1]),
    ),
    _field(
        "week",
        "the week of ISO 8601, from 1",
        (f"week({_AT})", 13),
        _of_date(lambda day: calendar.iso_week(day)[1]),
    ),
    _field(
        "day",
        "the day of the month, from 1",
        (f"day({_AT})", 29),
        _of_date(lambda day: calendar.civil(day)[2]),
    ),
    _field(
        "day_of_year",
        "the day of the year, from 1",
        (f"day_of_year({_AT})", 88),
        _of_date(calendar.day_of_year),
    ),
    _field(
        "day_of_week",
        "1 for Monday to 7 for Sunday",
        (f"day_of_week({_AT})", 7),
        _of_date(calendar.day_of_week),
    ),
    _field("hour", "0 to 23", (f"hour({_AT}, 'Europe/Berlin')", 14), _of_day(3600 * SECOND, 24)),
    _field("minute", "0 to 59", (f"minute({_AT})", 34), _of_day(60 * SECOND, 60)),
    _field("second", "0 to 59", (f"second({_AT})", 56), _of_day(SECOND, 60)),
    _field("millisecond", "0 to 999", (f"millisecond({_AT})", 789), _of_day(1_000, 1_000)),
    Function(
        "time_of(number: number, unit: text) -> time",
        _from_number,
        "the time of a number of `'s'`, `'ms'` or `'us'` since 1970 UTC",
        (("time_of(1500, 'ms')", 1_500_000),),
        checks={"unit": _unit_us},
        columns=_from_number_columns,
    ),
    Function(
        "parse_time(text: text, format?: text, zone?: text) -> time",
        _parse,
        "the time of a text: ISO 8601, or by a [format](#formats-of-times). Clocks of a zone that"
        " show it twice mean the first time; a time they skip is as far behind the jump",
        (
            ("parse_time('1970-01-01T00:00:01Z')", 1_000_000),
            ("parse_time('02.01.1970 01:00', '%d.%m.%Y %H:%M', 'Europe/Paris')", 86_400_000_000),
        ),
        checks={"format": formats.checked_to_parse, "zone": zone_of},
        columns=_parse_columns,
    ),
    Function(
        "iso(time: time, zone?: text) -> text",
        _iso,
        "the time as text of ISO 8601, in UTC or by the clocks of a zone, with six digits of a"
        " fraction if it has one",
        (
            ("iso(1500000)", "1970-01-01T00:00:01.500000Z"),
            ("iso(0, 'Europe/Paris')", "1970-01-01T01:00:00+01:00"),
        ),
        checks={"time": time_of, "zone": zone_of},
        columns=_iso_columns,
    ),
    Function(
        "duration(text: text) -> int",
        lambda text: _length(text_of(text)),
        "the µs of a duration: `at + duration('15m')` is a time",
        (("duration('1.5h')", 5_400_000_000),),
        checks={"text": _length},
        columns=_duration_columns,
    ),
    Function(
        "date_format(time: time, format: text, zone?: text) -> text",
        _format,
        "the time as a text of a [format](#formats-of-times)",
        (
            (f"date_format({_AT}, '%Y-%m-%d %H:%M')", "2026-03-29 12:34"),
            ("date_format(0, '%a %H:%M %z', 'Asia/Tokyo')", "Thu 09:00 +0900"),
        ),
        checks={"time": time_of, "format": formats.checked, "zone": zone_of},
        columns=_format_columns,
    ),
    Function(
        "trunc(time: time, unit: text, zone?: text) -> time",
        _trunc,
        "the beginning of the period that it lies in: of a duration such as `'15m'` or `'1d'`,"
        " counted from 1970-01-01, of a `'week'` (from Monday), `'month'`, `'quarter'` or `'year'`."
        " With a zone by its clocks: a beginning that they skip is when they jump",
        (
            ("trunc(86399999999, '1h')", 82_800_000_000),
            ("trunc('2026-03-29T12:00Z', '1d', 'Europe/Berlin')", 1_774_738_800_000_000),
        ),
        checks={"time": time_of, "unit": _unit, "zone": zone_of},
        columns=_trunc_columns,
    ),
    Function(
        "time_diff(start: time, end: time, unit: text) -> int",
        _difference,
        "how many whole durations lie between them; negative if the end is earlier. `end - start`"
        " is in µs",
        (("time_diff(0, 7300000000, '1h')", 2), ("time_diff(7300000000, 0, '1h')", -2)),
        checks={"start": time_of, "end": time_of, "unit": _length},
    ),
)
