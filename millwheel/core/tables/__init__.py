"""Tables: the rows of streams of changes, by their keys."""
