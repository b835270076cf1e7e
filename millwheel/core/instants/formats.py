"""Times as texts of a format, with the codes of ``strftime`` that mean the same everywhere: English
names, no locale, all years. Nothing is tried twice, so a text of any length is read in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from millwheel.core.instants import calendar
from millwheel.core.instants.numbers import DAY_US
from millwheel.core.model.times import SECOND

MAX_FORMAT = 200
"""The longest format, in characters: a text may have a dozen for each."""
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December"
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = 3  # Fixed: letters of %a and %b
_DIGITS = "0123456789"


@dataclass(slots=True)
class _Shown:
    """The time that clocks show, and how far they are ahead of UTC."""

    wall: int
    offset: int

    @property
    def day(self) -> int:
        return self.wall // DAY_US

    def of_day(self, unit_us: int, count: int) -> int:
        """A number of hours, minutes and so on."""
        return self.wall // unit_us % count

    @property
    def date(self) -> tuple[int, int, int]:
        return calendar.civil(self.day)

    @property
    def zone(self) -> str:
        minutes, seconds = divmod(abs(self.offset) // SECOND, 60)
        sign = "-" if self.offset < 0 else "+"
        tail = f"{seconds:02}" if seconds else ""
        return f"{sign}{minutes // 60:02}{minutes % 60:02}{tail}"


def _hour(at: _Shown) -> int:
    return at.of_day(3600 * SECOND, 24)


_WRITE: dict[str, Callable[[_Shown], str]] = {
    "Y": lambda at: f"{at.date[0]:04}",
    "y": lambda at: f"{at.date[0] % 100:02}",
    "m": lambda at: f"{at.date[1]:02}",
    "d": lambda at: f"{at.date[2]:02}",
    "B": lambda at: MONTHS[at.date[1] - 1],
    "b": lambda at: MONTHS[at.date[1] - 1][:_SHORT],
    "A": lambda at: DAYS[calendar.day_of_week(at.day) - 1],
    "a": lambda at: DAYS[calendar.day_of_week(at.day) - 1][:_SHORT],
    "j": lambda at: f"{calendar.day_of_year(at.day):03}",
    "u": lambda at: str(calendar.day_of_week(at.day)),
    "G": lambda at: f"{calendar.iso_week(at.day)[0]:04}",
    "V": lambda at: f"{calendar.iso_week(at.day)[1]:02}",
    "H": lambda at: f"{_hour(at):02}",
    "I": lambda at: f"{(_hour(at) + 11) % 12 + 1:02}",
    "p": lambda at: "AM" if _hour(at) < 12 else "PM",
    "M": lambda at: f"{at.of_day(60 * SECOND, 60):02}",
    "S": lambda at: f"{at.of_day(SECOND, 60):02}",
    "f": lambda at: f"{at.of_day(1, SECOND):06}",
    "z": lambda at: at.zone,
    "%": lambda at: "%",
}


@lru_cache(maxsize=256)
def checked(form: str) -> tuple[tuple[str, str], ...]:
    """The pieces of a format: (code, "") or ("", text). Raises ValueError."""
    if len(form) > MAX_FORMAT:
        raise ValueError(f"a format has up to {MAX_FORMAT} characters")
    pieces = []
    letters = iter(form)
    for letter in letters:
        if letter != "%":
            pieces.append(("", letter))
            continue
        code = next(letters, "")
        if code not in _WRITE:
            raise ValueError(f"%{code} is not a code of a format; there are %{' %'.join(_WRITE)}")
        pieces.append((code, ""))
    return tuple(pieces)


@lru_cache(maxsize=256)
def checked_to_parse(form: str) -> tuple[tuple[str, str], ...]:
    """As :func:`checked`, for a format by which texts are read."""
    pieces = checked(form)
    for code, _ in pieces:
        if code and code not in _READ:
            raise ValueError(f"%{code} cannot be read; there are %{' %'.join(_READ)}")
    return pieces


_OF_DAY_US = {  # Fixed: µs of the units of a day
    "H": 3600 * SECOND,
    "I": 3600 * SECOND,
    "p": 3600 * SECOND,
    "M": 60 * SECOND,
    "S": SECOND,
    "f": 1,
}


def resolution_us(form: str) -> int:
    """Times that lie in the same stretch of so many µs, counted from 1970, have the same text in
    UTC. Raises ValueError for a text that is not a format."""
    return min([_OF_DAY_US.get(code, DAY_US) for code, _ in checked(form)], default=DAY_US)


def formatted(wall: int, offset: int, form: str) -> str:
    """The text of the time that clocks show, which are ``offset`` µs ahead of UTC."""
    at = _Shown(wall, offset)
    return "".join([_WRITE[code](at) if code else text for code, text in checked(form)])


@dataclass(slots=True)
class _Read:
    """The parts that have been read, and the position up to which they were."""

    text: str
    position: int = 0
    found: dict[str, int] = field(default_factory=dict)

    def literal(self, text: str) -> None:
        """Read a text."""
        if not self.text.startswith(text, self.position):
            raise ValueError(self.wrong(f"{text!r} is missing"))
        self.position += len(text)

    def digits(self, least: int, most: int) -> str:
        """Read digits."""
        end = begin = self.position
        while end < len(self.text) and end - begin < most and self.text[end] in _DIGITS:
            end += 1
        if end - begin < least:
            raise ValueError(self.wrong("digits are missing"))
        self.position = end
        return self.text[begin:end]

    def one_of(self, names: tuple[str, ...]) -> int:
        """Read a name, in large or small letters; returns its index."""
        rest = self.text[self.position : self.position + max(map(len, names))].lower()
        for index, name in enumerate(names):
            if rest.startswith(name.lower()):
                self.position += len(name)
                return index
        raise ValueError(self.wrong(f"none of {', '.join(names)} is there"))

    def wrong(self, why: str) -> str:
        """The sentence about a text that does not fit."""
        return f"{self.text[:80]!r} does not fit the format: at position {self.position} {why}"


def _number(least: int, most: int) -> Callable[[_Read], int]:
    return lambda read: int(read.digits(least, most))


def _offset(read: _Read) -> int:
    if read.text[read.position : read.position + 1] in ("Z", "z"):
        read.position += 1
        return 0
    sign = -1 if read.one_of(("+", "-")) else 1
    hours = int(read.digits(2, 2))
    if read.text.startswith(":", read.position):
        read.position += 1
    minutes = int(read.digits(2, 2))
    if minutes > 59 or hours > 23:
        raise ValueError(read.wrong("there is no such offset"))
    return sign * (hours * 60 + minutes) * 60 * SECOND


_READ: dict[str, Callable[[_Read], int]] = {
    "Y": _number(4, 4),
    "m": _number(1, 2),
    "d": _number(1, 2),
    "B": lambda read: read.one_of(MONTHS) + 1,
    "b": lambda read: read.one_of(tuple(name[:_SHORT] for name in MONTHS)) + 1,
    "A": lambda read: read.one_of(DAYS),
    "a": lambda read: read.one_of(tuple(name[:_SHORT] for name in DAYS)),
    "H": _number(1, 2),
    "I": _number(1, 2),
    "p": lambda read: read.one_of(("AM", "PM")),
    "M": _number(1, 2),
    "S": _number(1, 2),
    "f": lambda read: int(read.digits(1, 9)[:6].ljust(6, "0")),
    "z": _offset,
    "%": lambda read: read.one_of(("%",)),
}


def parsed(text: str, form: str) -> tuple[int, int | None]:
    """The time that clocks show by a text, and how far they are ahead of UTC if it says so, in µs.
    Parts that the format does not name are those of 1970-01-01T00:00. Raises ValueError."""
    read = _Read(text)
    for code, literal in checked_to_parse(form):
        if code:
            read.found[{"B": "m", "b": "m"}.get(code, code)] = _READ[code](read)
        else:
            read.literal(literal)
    if read.position < len(text):
        raise ValueError(read.wrong("something follows"))
    return _day(read) * DAY_US + _of_day(read), read.found.get("z")


def _day(read: _Read) -> int:
    date = tuple(
        read.found.get(code, default) for code, default in (("Y", 1970), ("m", 1), ("d", 1))
    )
    days: int = calendar.days_of(*date)
    if calendar.civil(days) != date:
        raise ValueError(f"{read.text[:80]!r}: there is no such day")
    return days


def _of_day(read: _Read) -> int:
    hour, half = read.found.get("H", 0), read.found.get("I")
    if half is not None:
        hour = half % 12 + 12 * read.found.get("p", 0) if 1 <= half <= 12 else 24
    minute, second = read.found.get("M", 0), read.found.get("S", 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{read.text[:80]!r}: there is no such time of a day")
    return ((hour * 60 + minute) * 60 + second) * SECOND + read.found.get("f", 0)
