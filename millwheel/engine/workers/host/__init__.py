"""Around a worker's loop: assembly of the shards, and the transport."""
