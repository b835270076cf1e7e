"""Redis and Valkey: a sink whose rows appear once, and lookups. docs/redis.md tells how to use them."""
