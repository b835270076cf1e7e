"""Files as sources: formats, positions, and files that grow."""
