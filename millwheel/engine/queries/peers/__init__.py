"""Questions to workers by the Redis protocol: connections, redirections and retries."""
