"""Pipelines whose forms are asked for."""

from __future__ import annotations

from typing import Any

FIELDS = ", fields: {at: int, ad: int, user: str, cost: float, more: bool}"
PIPELINE = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at, id: user%s}
computations:
  sums: {input: {events: {key: ad}}, window: {tumbling: 10s}, where: "user > 'a'",
    aggregate: {n: {sum: cost}}, output: a}
  counts: {input: {events: {key: user%s}}, window: {count: 3}, aggregate: {n: count}, output: b%s}
"""
STEPS = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at%s}
computations:
  made: {input: {events: {key: %s}}, map: {x: cost * 2}, output: a}
"""
LOGS = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at%s}
computations:
  first: {input: {events: {key: [ad, user]}}, aggregate: {most: {max: cost}}, output: first}
  second: {input: {first: {key: ad}}, %s, output: second}
"""


def load(name: str) -> Any:
    raise AssertionError(f"{name} was loaded")
