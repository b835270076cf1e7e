"""Joins that emit changes: without windows, and in windows that fire more than once."""
