"""From snapshots and journals to a store, at once or by following."""
