"""The stores in memory live in the package, where the harness for users needs them."""

from millwheel.tools.testing.memory.stores import MemoryStore, MemoryStores

__all__ = ["MemoryStore", "MemoryStores"]
