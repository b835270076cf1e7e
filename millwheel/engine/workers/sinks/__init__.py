"""Sink shards: committables, and files of current rows (upsert)."""
