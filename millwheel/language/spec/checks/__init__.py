"""Checks across the parts of a pipeline, and of the code that they name."""
