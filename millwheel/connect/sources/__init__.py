"""Sources: the inputs of a pipeline. ``base`` is the contract: a position read again gives the same
records."""
