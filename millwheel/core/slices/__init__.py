"""Slices: how time is cut, at several levels."""
