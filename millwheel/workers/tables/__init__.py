"""Tables, kept by their keys."""
