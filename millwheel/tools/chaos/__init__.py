"""``millwheel chaos``: runs a pipeline twice, once undisturbed and once under faults, and compares
the results."""
