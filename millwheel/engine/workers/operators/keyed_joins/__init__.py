"""Joins without windows: both streams are kept by their keys."""
