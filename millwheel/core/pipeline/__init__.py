"""A pipeline as a value, the graph it becomes, and the work of a node on single records."""
