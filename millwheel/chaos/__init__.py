"""``millwheel chaos``: a pipeline run twice, once in peace and once under faults, and its results compared."""
