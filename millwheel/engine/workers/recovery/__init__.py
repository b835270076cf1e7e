"""From snapshots and journals to a store: all at once, or by following the owner."""
