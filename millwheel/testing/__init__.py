"""What users test their pipelines with: no processes, a clock and a watermark that are moved by hand."""

from __future__ import annotations

from millwheel.testing.window_harness import WindowHarness

__all__ = ["WindowHarness"]
