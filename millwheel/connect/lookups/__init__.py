"""Lookups: the values that other systems hold for a key. docs/lookups.md shows how to use them."""
