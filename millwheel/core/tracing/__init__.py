"""Trace contexts of records, and which records are traced. Pure."""
