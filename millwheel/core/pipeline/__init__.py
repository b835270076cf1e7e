"""A pipeline as a value, its graph, and the work of a node on single records."""
