"""A sink that notes when each result became visible: after its commit is durable, unless it shows
them ``at_once``.

Found by workers through the entry point in ``bench/plugins``. A line of its file is ``[seen,
[[group, total, created], ...]]``, times in seconds since 1970. The results themselves are the
committable, as with the stdout sink.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from millwheel.connect.sinks.base import Sink, SinkBatch, Writer


def build(options: Mapping[str, Any], folder: str) -> LatencySink:
    """``path`` is a folder; ``at_once``: results are visible before they are committed (default:
    not)."""
    return LatencySink(Path(folder) / str(options["path"]), options.get("at_once") is True)


class LatencySink(Sink):
    """See the module."""

    flush_us = 0
    cut_records = 50_000

    def __init__(self, folder: Path, at_once: bool) -> None:
        self._folder = folder
        self.shows_at_once = at_once

    def check(self, identity: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def open(self, shard: str, token: int) -> LatencyWriter:
        return LatencyWriter(self._folder / f"{shard}.jsonl")


class LatencyWriter(Writer):
    """Of one shard of the sink."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def prepare(self, batch: SinkBatch) -> bytes:
        return msgspec.json.encode(
            [[r.value["group"], r.value["total"], r.value["created"]] for r in batch.records]
        )

    def publish(self, committable: bytes) -> None:
        self._file.write(b"[%f,%b]\n" % (time.time(), committable))

    def sweep(self, committables: list[bytes]) -> None:
        """Nothing is left behind."""

    def close(self) -> None:
        self._file.close()
