"""Lookups: what other systems know of a key. docs/lookups.md tells how to use them."""
