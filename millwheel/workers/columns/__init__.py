"""What a shard of an aggregation holds in columns, and which of its keys are in rows beside it."""
