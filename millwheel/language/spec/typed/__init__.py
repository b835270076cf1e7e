"""Expressions by the declared kinds of the fields that they read."""
