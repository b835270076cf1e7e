"""Connectors: one room per outside system that records come from or go to."""
