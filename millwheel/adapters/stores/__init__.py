"""Local stores of shards: small ones in memory, big ones on RocksDB."""
