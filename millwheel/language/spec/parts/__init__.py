"""One module per part of a pipeline file."""
