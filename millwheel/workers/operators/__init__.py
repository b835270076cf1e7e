"""What runs a bundle: callbacks, windows, columns, joins, steps, branches."""
