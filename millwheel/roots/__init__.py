"""The root of a run: its lock, its lease, and what is shipped to it."""
