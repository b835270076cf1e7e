"""One shard: receive, deduplicate, run, commit, ack, send."""
