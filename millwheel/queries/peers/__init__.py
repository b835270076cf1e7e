"""Questions to workers by the Redis protocol: connections, and what becomes of a question that has moved."""
