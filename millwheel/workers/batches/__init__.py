"""Callbacks that take the records of a key together."""
