"""Queries: what a pipeline computes, asked while it runs. docs/queries.md has the rules."""
