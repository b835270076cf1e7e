"""The connection of a client to the query server, and what it may cost."""
