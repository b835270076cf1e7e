"""What a worker does: shards, operators, delivery, and answers to queries."""
