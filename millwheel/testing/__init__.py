"""Tools for testing pipelines without processes: docs/testing.md. The code is in
``tools/testing``."""

from millwheel.tools.testing import PipelineHarness, WindowHarness, assert_survives_crashes

__all__ = ["PipelineHarness", "WindowHarness", "assert_survives_crashes"]
