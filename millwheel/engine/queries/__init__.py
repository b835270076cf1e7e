"""Queries for the results of a running pipeline. docs/queries.md has the rules."""
