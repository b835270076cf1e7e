"""The ``tracing:`` part of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TracingSpec:
    """Records that come with a trace are traced. Of the others the share ``sample`` (0 to 1) is,
    too. With ``keys`` spans show keys, and not only their hashes."""

    sample: float = 0.0
    keys: bool = False
