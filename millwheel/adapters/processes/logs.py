"""The logs of a run's processes: text for people, or one JSON object per line for other programs.

A line that user code logs during a callback names the node, the shard and the hash of the key. This
costs nothing until user code logs. Keys themselves are not written, because logs are kept longer
than state and more people read them.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from enum import Enum

Context = Callable[[], Mapping[str, str]]
"""The call of user code that is running: some of ``node``, ``shard`` and ``key_hash``."""
FIELDS = ("node", "shard", "key_hash")


class LogFormat(str, Enum):
    """The format of a log."""

    TEXT = "text"
    JSON = "json"


class _Lines(logging.Formatter):
    """``context`` describes the running call, for log lines of the thread that has set it."""

    def __init__(self, pattern: str, fixed: Mapping[str, str]) -> None:
        super().__init__(pattern)
        self._fixed = dict(fixed)
        self._context: Context | None = None
        self._thread = 0

    def follow(self, context: Context) -> None:
        """Call ``context`` for each line of this thread from now on."""
        self._context, self._thread = context, threading.get_ident()

    def about(self, record: logging.LogRecord) -> dict[str, str]:
        """The subject of the line: from its ``extra``, or the running call."""
        fields = {
            name: str(value)
            for name in FIELDS
            if (value := getattr(record, name, None)) is not None
        }
        if fields or self._context is None or record.thread != self._thread:
            return fields
        return dict(self._context())


class TextLogLines(_Lines):
    """``2026-01-01 00:00:00,123 INFO message``, and for lines of user code the shard and the hash
    of the key."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", fixed)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line."""
        about = self.about(record)
        key = f" key {about['key_hash']}" if "key_hash" in about else ""
        about_key = (
            f" [{about['shard']}{key}]"
            if "shard" in about and about["shard"] not in record.message
            else ""
        )
        return super().formatMessage(record) + about_key


class JsonLogLines(_Lines):
    """One object per line: time, level, message, logger, pipeline, process, and subject."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        super().__init__("%(message)s", fixed)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(
            timespec="microseconds"
        )
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
            **self._fixed,
            **self.about(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(log_format: LogFormat, pipeline: str, process: str, level: int = logging.INFO) -> None:
    """Send all log lines of this process to standard error, in this format."""
    handler = logging.StreamHandler(sys.stderr)
    fixed = {"pipeline": pipeline, "process": process}
    handler.setFormatter(
        JsonLogLines(fixed) if log_format is LogFormat.JSON else TextLogLines(fixed)
    )
    logging.basicConfig(level=level, handlers=[handler])


def follow(context: Context) -> None:
    """Name the running call in lines that this thread logs."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Lines):
            handler.formatter.follow(context)
