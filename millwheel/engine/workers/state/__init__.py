"""State of keys: handles for callbacks, a cache, and the layer over the store."""
