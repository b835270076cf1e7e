"""The root of a run: its lock, its lease, and the files shipped to it."""
