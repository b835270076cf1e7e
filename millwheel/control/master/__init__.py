"""The master: the elected service that owns the range tables."""
