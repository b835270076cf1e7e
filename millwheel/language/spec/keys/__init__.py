"""The keys of inputs, as a pipeline writes them."""
