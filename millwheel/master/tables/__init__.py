"""Range tables: planned, resharded, succeeded."""
