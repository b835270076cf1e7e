"""YAML as nodes with their lines, and typed access to them."""
