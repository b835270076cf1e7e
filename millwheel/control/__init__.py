"""Who owns what, how far event time is, and what a run is."""
