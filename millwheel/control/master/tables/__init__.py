"""Range tables: planning, resharding, succession."""
