"""The text of a pipeline: read, checked, and described by a schema."""
