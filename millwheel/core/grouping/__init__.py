"""Groupings, which decide which of several instances gets a record of a key: pure machines with
tables per epoch."""
