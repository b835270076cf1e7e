"""One bundle of one shard: what it works on, and what comes out of it."""
