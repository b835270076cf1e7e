"""What user code hands to its context, checked at the call: a mistake fails the call that made it, and so one record.
Found later, when the bundle is committed, it would end the worker, at every restart again."""

from __future__ import annotations

from operator import index
from typing import Any

from millwheel.core.model.limits import over
from millwheel.core.model.records import Domain
from millwheel.core.model.times import LAST_TIME, MIN_TIME, instant
from millwheel.errors import RecordError

_LONGEST_COUNTER = 200  # characters of a counter's name
_MOST = 2**63 - 1  # Fixed: of a number of 64 bits
_SYSTEM_COUNTERS = frozenset(("records_in", "records_out", "late", "dead_letters", "duplicates"))


def timer_tag(call: str, tag: Any, most: int, systems: tuple[str, ...] = ("\0",)) -> str:
    """The tag of a timer as plain text of at most ``most`` bytes. ``systems``: how those of the system begin."""
    if not isinstance(tag, str):
        raise RecordError(f"{call}: the tag of a timer is text, not {type(tag).__name__} {tag!r:.80}")
    text: str = str.__str__(tag)  # a member of an Enum would come back as its text
    if text.startswith(systems):
        raise RecordError(f"{call} {text!r:.80}: the system's own tags begin so; use another text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as ex:
            raise RecordError(f"{call} {text!r:.80}: the tag is no Unicode text ({ex.reason})") from ex
    if len(text) * 4 > most and (size := len(text.encode())) > most:
        raise RecordError(over("key", f"{call}: a tag", size, most))
    return text


def timer_domain(call: str, domain: Any) -> Domain:
    """The clock of a timer."""
    if not isinstance(domain, Domain):
        raise RecordError(f"{call}: the domain is Domain.EVENT or Domain.PROCESSING, not {domain!r:.80}")
    return domain


def moment(call: str, at: Any) -> int:
    """A time in µs; beyond the first or the last instant, that instant."""
    if type(at) is int and MIN_TIME <= at <= LAST_TIME:
        return at
    try:
        if isinstance(at, bool):
            raise TypeError
        return instant(at)
    except TypeError:
        raise RecordError(
            f"{call}: a time is a whole number of µs since 1970, not {type(at).__name__} {at!r:.80}; "
            "round(seconds * 1_000_000) makes one"
        ) from None


def counted(name: Any, by: Any) -> tuple[str, int]:
    """The name of a counter, and a whole number of at most 64 bits."""
    if not isinstance(name, str) or name in _SYSTEM_COUNTERS or not name.isidentifier():
        raise RecordError(f"count: {name!r:.80} cannot name a counter; use a word of your own, such as 'retries'")
    if len(name) > _LONGEST_COUNTER:
        raise RecordError(f"count: a name of {len(name)} characters is too long for a counter; use a word")
    try:
        number = index(by)
    except TypeError:
        raise RecordError(
            f"count {name!r}: a counter counts in whole numbers, not by {type(by).__name__} {by!r:.80}; "
            "keep sums of other numbers in a ValueState"
        ) from None
    if not -_MOST <= number <= _MOST:
        raise RecordError(f"count {name!r}: {number:.3e} does not fit into 64 bits")
    return str.__str__(name), number
