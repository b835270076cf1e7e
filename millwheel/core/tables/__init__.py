"""Tables: the rows of streams of changes and of declared tables, by their keys."""
