"""Savepoints: taking one of a running pipeline, what lies in one, and whether another pipeline can go on from it."""
