"""Groupings: which of several instances gets a record of a key, as pure machines with tables per
epoch."""
