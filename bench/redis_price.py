"""What a batch of rows costs in Redis, by the kind of its values: processor time of ours, time of
the script.

    python -m bench redis_price [--rows 2000] [--batches 25]

The server keeps an append-only file, and syncs it after each batch. Rounds of the kinds alternate.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from millwheel.connect.connectors.redis.sink import build_redis_sink
from millwheel.connect.sinks.base import SinkBatch, SinkRecord, Writer

KINDS: Mapping[str, Mapping[str, Any]] = {
    "hash": {"kind": "hash", "key": "hash:{ad}"},
    "string": {"kind": "string", "key": "text:{ad}"},
    "sorted_set": {"kind": "sorted_set", "key": "best:{page}", "member": "{ad}", "score": "clicks"},
}


def main() -> None:
    """Print a line of JSON for each kind."""
    from tests.servers.redis import running

    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        for server in running(Path(folder)):
            client, writers = server.client(), {kind: _writer(server.url, kind) for kind in KINDS}
            found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
            for number in range(arguments.batches):
                for kind, writer in writers.items():
                    found[kind].append(_written(client, writer, number, arguments.rows))
    for kind, figures in found.items():
        # the first one connects
        ours, script, whole = (median(column) for column in zip(*figures[1:], strict=True))
        told = {
            "cpu_us_per_row": ours / arguments.rows,
            "script_us_per_row": script / arguments.rows,
            "batch_ms": whole / 1e3,
        }
        print(
            json.dumps(
                {
                    "kind": kind,
                    "rows": arguments.rows,
                    **{name: round(at, 2) for name, at in told.items()},
                }
            )
        )


def _writer(url: str, kind: str) -> Writer:
    sink = build_redis_sink({"url": url, **KINDS[kind], "marks": f"marks:{kind}:"})
    sink.identity = "bench"
    return sink.open(f"sink.{kind}-0", 1)


def _written(client: Any, writer: Writer, number: int, rows: int) -> tuple[float, float, float]:
    """One batch: processor time of this process, time that the server spent in scripts, and time in
    all (µs)."""
    values = [
        {"ad": n, "page": n % 20, "clicks": n + number, "cost": n / 7, "window_start": number}
        for n in range(rows)
    ]
    batch = SinkBatch(
        number, f"1-{number}", [SinkRecord(str(value["ad"]), value, number) for value in values]
    )
    client.config_resetstat()
    began, cpu = time.perf_counter(), time.process_time()
    writer.publish(writer.prepare(batch))
    ours, whole = time.process_time() - cpu, time.perf_counter() - began
    told = client.info("commandstats")
    scripts = sum(told.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("eval", "evalsha"))
    return ours * 1e6, float(scripts), whole * 1e6


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench redis_price")
    parser.add_argument("--rows", type=int, default=2_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=25, help="batches of each kind")
    return parser.parse_args()
