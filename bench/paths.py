"""Where things are: the checkout, the cache, the results."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_path

HOUSE = Path(__file__).resolve().parent.parent
BENCH = HOUSE / "bench"
PIPELINES = BENCH / "pipelines"
PEERS = BENCH / "peers"
PLUGINS = BENCH / "plugins"
RESULTS = BENCH / "results.jsonl"
"""Figures of full runs, which docs/performance.md shows."""

PROFILES = BENCH / "profiles"
"""What ``python -m bench profile`` found, a table per part."""


def cache() -> Path:
    """Inputs, environments of peers, and folders of runs; may be deleted at any time."""
    return user_cache_path("millwheel") / "bench"


def quick_results() -> Path:
    """Figures of ``--quick`` runs, which prove that a part works and mean nothing else."""
    return cache() / "quick.jsonl"
