"""Parts A and B as a bare Python loop on one core: the limit for code per record; nothing is kept
or committed."""

import math
import os
import sys
from pathlib import Path

import orjson


def windows(lines):
    state = {}
    for line in lines:
        value = orjson.loads(line)
        at = value["ts"]
        index = (value["ad_id"], at - at % 60_000)
        row = state.get(index)
        if row is None:
            row = state[index] = [0, 0, 0.0]
        row[value["type"] == "click"] += 1
        row[2] += value["cost"]
    names = ("impressions", "clicks", "spend")
    for (ad, start), row in state.items():
        yield {"ad_id": ad, "window_start": start * 1000, **dict(zip(names, row, strict=True))}


def callback(lines):
    state = {}
    for line in lines:
        value = orjson.loads(line)
        key, cost = value["ad_id"], value["cost"]
        count, mean, squares = state.get(key, (0, 0.0, 0.0))
        if count >= 30:
            deviation = math.sqrt(squares / (count - 1))
            if deviation > 0 and abs((cost - mean) / deviation) > 4:
                yield {"event_id": value["event_id"], "ad_id": key, "z": (cost - mean) / deviation}
        count += 1
        delta = cost - mean
        mean += delta / count
        state[key] = (count, mean, squares + delta * (cost - mean))


def lines_of(folder):
    for path in sorted(Path(folder).glob("*.jsonl")):
        with path.open("rb") as file:
            yield from file


with open(os.path.join(os.environ["BENCH_OUTPUT"], "rows.jsonl"), "wb") as out:
    for row in {"windows": windows, "callback": callback}[sys.argv[1]](
        lines_of(os.environ["BENCH_INPUT"])
    ):
        out.write(orjson.dumps(row) + b"\n")
