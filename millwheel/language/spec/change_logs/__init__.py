"""Change logs: an aggregation without a window, from its fields in a file to how it speaks."""
