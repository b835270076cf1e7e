"""What users test their pipelines with: no processes, a clock and a watermark that are moved by hand."""

from __future__ import annotations

from millwheel.testing.crashes import assert_survives_crashes
from millwheel.testing.pipeline_harness import PipelineHarness
from millwheel.testing.window_harness import WindowHarness

__all__ = ["PipelineHarness", "WindowHarness", "assert_survives_crashes"]
