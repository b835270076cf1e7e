"""One bundle of one shard: its input, its calls of user code, and its output."""
