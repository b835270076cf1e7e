"""A pipeline as a value, the graph it becomes, and what a node does to single records."""
