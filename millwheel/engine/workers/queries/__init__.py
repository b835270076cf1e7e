"""Queries in a worker's loop: the shards answer, a bounded share of each step."""
