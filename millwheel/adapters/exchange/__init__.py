"""The data plane between workers."""
