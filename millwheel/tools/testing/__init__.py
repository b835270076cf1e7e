"""Tools for testing pipelines without processes: the test moves the clock and the watermark."""

from __future__ import annotations

from millwheel.tools.testing.crashes import assert_survives_crashes
from millwheel.tools.testing.pipeline_harness import PipelineHarness
from millwheel.tools.testing.window_harness import WindowHarness

__all__ = ["PipelineHarness", "WindowHarness", "assert_survives_crashes"]
