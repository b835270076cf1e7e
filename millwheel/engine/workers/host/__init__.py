"""Around a worker's loop: assembly of the shards, threads for blocking calls, and the transport."""
