"""The storage in memory lives in the package, where the harness for users needs it."""

from millwheel.tools.testing.memory.storage import ROOT, MemoryStorage

__all__ = ["ROOT", "MemoryStorage"]
