"""Joins that emit what changes: without windows, and in windows that fire more than once."""
