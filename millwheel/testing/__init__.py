"""Tools for testing pipelines without processes: the test moves the clock and the watermark."""

from __future__ import annotations

from millwheel.testing.crashes import assert_survives_crashes
from millwheel.testing.pipeline_harness import PipelineHarness
from millwheel.testing.window_harness import WindowHarness

__all__ = ["PipelineHarness", "WindowHarness", "assert_survives_crashes"]
