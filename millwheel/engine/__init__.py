"""The work of a worker: shards, operators, delivery, and answers to queries."""
