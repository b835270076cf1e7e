"""Traces: the side table of the contexts of traced records, and their spans. docs/tracing.md has
the rules."""
