"""The loop of a worker: events in, steps of shards, commits, reports."""
