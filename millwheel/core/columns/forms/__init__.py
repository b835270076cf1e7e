"""The forms in which computations, joins and sources take records: columns, or one by one; and
why. Workers ask here, and ``millwheel explain``."""
