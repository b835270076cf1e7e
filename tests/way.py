"""How many files a record enters on its way from a source to a sink.

    python -m tests.way    # one line per file, the busiest first

A pipeline of one computation runs in the memory cluster. A profiler counts each call into a
function of another file of the package, down to the helpers of the watermark and of the test
harness. Three and four records are pushed, each by itself: the difference is one record, without
the start of the pipeline. The last line leaves out what a worker does not do: the harness with its
journal in memory (``tools``), and the watermark service and the master (``control``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from millwheel.testing import PipelineHarness

PACKAGE = str(Path(__file__).resolve().parent.parent / "millwheel") + "/"
OUTSIDE = ("tools/", "control/")
PIPELINE = """
pipeline: way
streams:
  words: {source: {files: {path: in.jsonl, format: jsonl}}, timestamp: t}
  counts: {}
computations:
  count: {input: {words: {key: word}}, output: counts, window: {tumbling: 1m},
    aggregate: {n: count}}
sinks:
  counts: {stdout: {}}
"""


class Visits:
    """Entries into files of the package: a call from a function of another file."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if (
            event == "call"
            and (name := _file(frame))
            and (frame.f_back is None or _file(frame.f_back) != name)
        ):
            self.of[name] += 1


def _file(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    return path[len(PACKAGE) :] if path.startswith(PACKAGE) else ""


def visits(values: Sequence[dict[str, Any]]) -> Counter[str]:
    """The entries while these records are pushed, each by itself."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "p.yaml"
        path.write_text(PIPELINE, encoding="utf-8")
        with PipelineHarness(path, shards=1, workers=1) as harness:
            seen = Visits()
            sys.setprofile(seen)
            try:
                for value in values:
                    harness.push("words", value)
            finally:
                sys.setprofile(None)
    return seen.of


def way() -> Counter[str]:
    """Entries that one further record causes, by file."""
    record = {"t": 1_000_000, "word": "a"}
    few, more = visits([record] * 3), visits([record] * 4)
    return more - few


if __name__ == "__main__":
    found = way()
    for file, count in found.most_common():
        print(f"{count:4}  {file}")
    print(f"{sum(found.values())} visits to {len(found)} files")
    inside = {file: count for file, count in found.items() if not file.startswith(OUTSIDE)}
    print(f"{sum(inside.values())} visits to {len(inside)} files in the worker")
