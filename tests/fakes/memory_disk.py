"""The disk in memory lives in the package, where the harness for users needs it."""

from millwheel.testing.memory_disk import Choice, MemoryDisk, nothing

__all__ = ["Choice", "MemoryDisk", "nothing"]
