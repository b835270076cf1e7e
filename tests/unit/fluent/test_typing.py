"""What a type checker, and so an editor, knows of a pipeline in Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[3]

RIGHT = """\
from millwheel import Computation, Context, FileSink, FileSource, Pipeline, Record, Sessions, Tumbling, ValueState
from millwheel import AfterCount, agg, param


class Limit(Computation):
    seen = ValueState(int, default=0)

    def process_record(self, ctx: Context, record: Record) -> None:
        self.seen.set(self.seen.get() + 1)


p = Pipeline("p")
hits = p.read("hits", FileSource(param("input"), "jsonl"), timestamp="ts", fields={"a": int, "b": "float"})
one = hits.key_by("user").process(Limit)
kept, left = hits.key_by("user", "path").process(Limit, output=["kept", "left"])
keyed = p.flatten(one, kept).key_by(lambda value: value["x"])
both = keyed.window(Tumbling("1m"), late="refire").trigger(AfterCount(3)).aggregate({"n": agg.count(), "m": "count"})
both.write(FileSink("out", flush="1s")).filter("n > 3").map({"n": "n"}, shards=4)
"""
WRONG = """\
hits.window(Sessions("1m"), output_time="begin")
hits.map(3)
hits.key_by("a").write(FileSink("x"))
p.read("x", "file")
hits.process(int)
hits.windw(Tumbling("1m"))
hits.filter("x", shard=4)
FileSource("x", "json")
agg.top_k("x")
kept.key_by("a").aggregate({})
"""


def test_right_calls_pass_the_strict_check_and_wrong_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(RIGHT + WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "c"), "use.py"]
    given = {**os.environ, "PYTHONPATH": str(REPO), "MYPYPATH": str(REPO)}
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=240, check=False)
    first = RIGHT.count("\n") + 1
    lines = sorted({int(line) for line in re.findall(r"^use\.py:(\d+): error", done.stdout, re.MULTILINE)})
    assert lines == list(range(first, first + WRONG.count("\n"))), done.stdout + done.stderr
