"""Source shards: partitions, positions, sorting, silence, injection."""
