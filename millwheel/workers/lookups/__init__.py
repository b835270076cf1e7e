"""Lookup shards: bundles that wait for the answers of another system."""
