"""Savepoints: taking one, its contents, and whether another pipeline can continue from it."""
