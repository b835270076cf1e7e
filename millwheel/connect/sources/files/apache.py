"""Web server logs in Apache's combined (or common) format."""

from __future__ import annotations

import re
from calendar import timegm
from typing import Any

import msgspec

from millwheel.connect.sources.files.lines import Block, Decoded, decode_each
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import RecordError

_TEXT = r'"([^"\\]*(?:\\.[^"\\]*)*)'
_LINE = re.compile(
    rf'(\S+) (\S+) ([^ \[]+|.+?) \[([^\]]+)\] {_TEXT}" (\d{{3}}) (\d+|-)(?: {_TEXT}"'
    rf' {_TEXT}(?:"|$))?(?: .*)?',
    re.DOTALL,
).fullmatch
_TIME = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_CACHED_TIMES = 100_000  # parsed times that are remembered: lines of a second share one


class ApacheCombined:
    """Fields: client, ident, user, time (µs UTC), request, method, path, protocol, status, size (0
    for "-"), referrer, agent ("" in the common format, which lacks them).

    A line that is truncated after its size is still a record, with the remaining part of its agent.
    """

    has_header = False
    one_line = True

    def __init__(self, schema: type | None, fields: FieldTypes) -> None:
        self._schema = schema
        self._fields = fields
        self._times: dict[str, int] = {}

    def begin(self, header: bytes) -> None:
        """Logs have no header."""

    def decode(self, block: Block) -> Decoded:
        return decode_each(block, self._line)

    def _line(self, line: bytes) -> Any:
        text = line.decode()
        match = _LINE(text)
        if match is None:
            raise RecordError(f"no Apache combined log line: {_where(text)}")
        client, ident, user, time, request, status, size, referrer, agent = match.groups()
        method, path, protocol = _request(request)
        value = {
            "client": client,
            "ident": ident,
            "user": user,
            "time": self._times.get(time) or self._time(time),
            "request": request,
            "method": method,
            "path": path,
            "protocol": protocol,
            "status": int(status),
            "size": 0 if size == "-" else int(size),
            "referrer": referrer or "",
            "agent": agent or "",
        }
        if self._fields:
            for problem in self._fields.check([value]).values():
                raise RecordError(problem)
        return value if self._schema is None else msgspec.convert(value, self._schema)

    def _time(self, text: str) -> int:
        if len(self._times) >= _CACHED_TIMES:
            self._times.clear()
        time = self._times[text] = log_time_us(text)
        return time


def log_time_us(text: str) -> int:
    """``17/May/2015:10:05:03 +0000`` in µs UTC. Raises RecordError when it has another form."""
    match = _TIME.fullmatch(text)
    if match is None or match.group(2) not in _MONTHS:
        raise RecordError(f"the time [{text[:80]}] is not of the form 17/May/2015:10:05:03 +0000")
    day, month, year, hour, minute, second, sign, off_hours, off_minutes = match.groups()
    if not (1 <= int(day) <= 31 and int(hour) < 24 and int(minute) < 60 and int(second) <= 60):
        raise RecordError(f"the time [{text}] does not exist")
    local = timegm((int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second)))
    offset = (int(off_hours) * 60 + int(off_minutes)) * 60
    return (local - offset if sign == "+" else local + offset) * 1_000_000


def _request(request: str) -> tuple[str, str, str]:
    """Method, path and protocol; text that is not an HTTP request becomes the path."""
    parts = request.split(" ")
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    if len(parts) > 3:
        return parts[0], " ".join(parts[1:-1]), parts[-1]
    return (parts[0], parts[1], "") if len(parts) == 2 else ("", request, "")


def _where(text: str) -> str:
    """The first missing part, with its column."""
    if (bracket := text.find("[")) < 0:
        return "there is no [time]"
    quote = text.find('"', bracket)
    if quote < 0:
        return f'there is no "request" after column {bracket + 1}'
    return f"after the request in column {quote + 1}, a status and a size are expected"
