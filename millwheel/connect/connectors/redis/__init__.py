"""Redis and Valkey: a sink whose rows appear once, and lookups. docs/redis.md shows how to use
them."""
