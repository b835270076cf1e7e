"""Workers: shards of key ranges, served by one loop per process."""
