"""Steps and branches that take whole bundles in columns."""
