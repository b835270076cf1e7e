"""Sink shards: committables, and rows that stand."""
