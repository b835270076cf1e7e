"""Operators, which run a bundle: callbacks, windows, columns, joins, steps, branches."""
