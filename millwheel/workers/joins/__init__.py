"""Joins of which a whole bundle is taken at once."""
