"""Rows in order: the first so many records of each key, and the last of one."""
