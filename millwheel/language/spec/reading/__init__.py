"""YAML as nodes that know their line, and typed access to them."""
