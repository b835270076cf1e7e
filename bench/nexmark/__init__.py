"""Nexmark: an auction site's events by the published rules, its queries as pipelines without
Python, and DuckDB as the judge of each run."""
