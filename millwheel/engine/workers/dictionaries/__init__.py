"""Dictionaries: numbers for the values of a field, kept by partition."""
