"""Rows in order: the first so many records of each key."""
