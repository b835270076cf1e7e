"""Progress, metrics, state and result of a run, for its user."""
