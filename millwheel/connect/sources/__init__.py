"""Sources: where records come from. ``base`` is the contract: a position read again gives the same
records."""
