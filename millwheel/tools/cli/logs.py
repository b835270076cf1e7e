"""``millwheel logs``: the logs of all processes of a run, in the order of time."""

from __future__ import annotations

import heapq
import json
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from millwheel.errors import SetupError
from millwheel.tools.cli.arguments import chosen_root

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HEAD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (.*)")
_SHARD = re.compile(r"-\d+$")


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry, of either format. ``time`` is UTC in ISO 8601; lines after the first are in
    ``message``."""

    time: str
    process: str
    level: str
    message: str
    logger: str = ""
    pipeline: str = ""
    node: str = ""
    shard: str = ""
    key_hash: str = ""
    exception: str = ""

    def at_least(self, level: str) -> bool:
        """Whether it has this level or a graver one. Entries of unknown levels are shown."""
        return self.level not in LEVELS or LEVELS.index(self.level) >= LEVELS.index(level)

    def concerns(self, computation: str) -> bool:
        """Whether it names the computation, or one of its shards."""
        if self.node or self.shard:
            return computation in (self.node, _SHARD.sub("", self.shard))
        word = re.escape(computation)
        return re.search(rf"(?<![\w.-]){word}(-\d+)?(?![\w-])", self.message) is not None


def logs(address: str, computation: str, level: str, as_json: bool) -> None:
    """Print the entries of all logs of a root on standard output."""
    folder = chosen_root(address) / "logs"
    if level.upper() not in LEVELS:
        raise SetupError(
            f"There is no level {level}; there are {', '.join(each.lower() for each in LEVELS)}"
        )
    paths = sorted(folder.glob("*.log"))
    if not paths:
        raise SetupError(
            f"There are no logs in {folder}: no run has begun on this root, or its machines keep"
            " them"
        )
    for entry in merged_logs(paths):
        if entry.at_least(level.upper()) and (not computation or entry.concerns(computation)):
            print(msgspec.json.encode(entry).decode() if as_json else _line(entry), file=sys.stdout)


def merged_logs(paths: Iterable[Path]) -> Iterator[LogEntry]:
    """The entries of all files, the earliest first. A file is read as it is needed."""
    return heapq.merge(*map(entries_of, paths), key=lambda entry: entry.time)


def entries_of(path: Path) -> Iterator[LogEntry]:
    """The entries of one log. Lines without a time of their own, such as those of a traceback,
    belong to the one before them; lines before the first entry get the time of that entry."""
    process, waiting, before = path.stem, None, ""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            entry = _read(line.rstrip("\n"), process)
            if entry is None and waiting is not None:
                more = f"{waiting.message}\n{line.rstrip()}"
                waiting = msgspec.structs.replace(waiting, message=more)
            elif entry is None:
                before += f"{line.rstrip()}\n"
            else:
                if waiting is not None:
                    yield waiting
                elif before:
                    yield LogEntry(entry.time, process, "INFO", before.rstrip())
                waiting = entry
    if waiting is not None:
        yield waiting
    elif before.strip():
        yield LogEntry(_changed(path), process, "INFO", before.rstrip())


def _read(line: str, process: str) -> LogEntry | None:
    if line.startswith("{"):
        try:
            return msgspec.convert({"process": process, **json.loads(line)}, LogEntry)
        except (ValueError, msgspec.ValidationError):
            return None
    match = _HEAD.match(line)
    if match is None:
        return None
    moment, level, message = match.groups()
    local = datetime.strptime(moment, "%Y-%m-%d %H:%M:%S,%f").astimezone(timezone.utc)
    return LogEntry(_iso(local), process, level, message)


def _changed(path: Path) -> str:
    return _iso(datetime.fromtimestamp(path.stat().st_mtime, timezone.utc))


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(entry: LogEntry) -> str:
    about = (
        f" [{entry.shard}{f' key {entry.key_hash}' if entry.key_hash else ''}]"
        if entry.shard
        else ""
    )
    exception = f"\n{entry.exception}" if entry.exception else ""
    moment = f"{entry.time[:10]} {entry.time[11:23]}Z"
    return f"{moment} {entry.level:<7} {entry.process:<9} {entry.message}{about}{exception}"
