"""Aggregators, and how several of them become one aggregation."""
