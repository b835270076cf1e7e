"""The disk in memory lives in the package, where the harness for users needs it."""

from millwheel.tools.testing.memory.disk import Choice, MemoryDisk, nothing

__all__ = ["Choice", "MemoryDisk", "nothing"]
