"""Progress and result of a run, as its user sees them."""
