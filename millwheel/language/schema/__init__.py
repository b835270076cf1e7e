"""The JSON Schema of the pipeline file, for editors: made from the same structs and words that the
reader checks."""
