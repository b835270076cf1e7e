"""Window machines: one per family of windows, and the choice between them."""
