"""The forms in which computations, joins and sources take records, columns or one by one, with the
reasons. For workers, and for ``millwheel explain``."""
