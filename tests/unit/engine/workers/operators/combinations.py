"""Pipelines of single combinators, and random hits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HEAD = """
pipeline: combinations
streams:
  hits:
    source: {files: {path: hits.jsonl, format: jsonl}}
    timestamp: {field: at, unit: us}
    watermark: {max_delay: 100us}
"""
FOLLOW = """
from millwheel import Computation, ListState, ValueState


class Follow(Computation):
    seen = ListState(int)

    def process_record(self, ctx, record):
        if record.value.get("page") == "poison":
            raise ValueError("poisoned")
        self.seen.append(record.timestamp)
        ctx.produce("steps", {"user": ctx.key, "what": record.value["page"],
          "at": record.timestamp})
        if record.value["page"] == "timer":
            ctx.set_timer("bell", record.timestamp + 3)
        ctx.count("followed")

    def process_timer(self, ctx, timer):
        ctx.produce("steps", {"user": ctx.key, "what": "bell", "at": timer.at})
"""


def written(folder: Path, computations: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "follow.py").write_text(FOLLOW)
    path = folder / "pipeline.yaml"
    path.write_text(HEAD + computations)
    return str(path)


def hit(at: int, user: str = "ann", page: str = "a", size: int = 1) -> dict[str, Any]:
    return {"at": at, "user": user, "page": page, "size": size}


hits = st.lists(
    st.builds(
        hit,
        st.integers(0, 40),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["a", "b", "timer"]),
        st.integers(0, 9),
    ),
    max_size=12,
)
