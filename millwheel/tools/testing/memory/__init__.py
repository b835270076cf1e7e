"""A whole cluster in memory, in one thread."""
