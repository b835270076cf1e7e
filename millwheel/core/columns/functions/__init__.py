"""Accumulators in columns, a file for each family of aggregate functions."""
